// The application that `holdfast bench` measures: a reading in its own table, and its event.
#include <memory>

#include "bench.hpp"
#include "db.hpp"
#include "holdfast/store.hpp"
#include "holdfast/writer.hpp"

namespace holdfast::cli::bench {
namespace {

constexpr std::int64_t kFillBatchEvents = 10'000;

constexpr const char* kTable = "CREATE TABLE bench_reading(id INTEGER PRIMARY KEY, value INTEGER)";
constexpr const char* kRow = "INSERT INTO bench_reading(value) VALUES(?1)";

Event reading() {
  Event event;
  event.event_type = "sensor.reading.v1";
  event.aggregate_type = "sensor";
  event.aggregate_id = "boiler-1";
  event.content_type = kContentTypeJson;
  event.payload = payload();
  event.payload_is_text = true;
  return event;
}

std::string make_payload() {
  std::string text = R"({"sensor":"boiler-1","celsius":71.25,"note":")";
  text.append(kPayloadBytes - text.size() - 2, 'x');
  return text + "\"}";
}

Status insert_row(sqlite3* db, Statement& statement, std::int64_t value) {
  Status status = statement.prepare(db, kRow);
  if (!status.ok()) return status;
  statement.bind(1, value);
  return statement.run("bench");
}

}  // namespace

struct Producer::Impl {
  Store store;
  Statement row;  // after store: finalized before its connection closes
  Outbox outbox;
};

Producer::Producer() = default;
Producer::~Producer() = default;
Producer::Producer(Producer&&) noexcept = default;

Status Producer::open(const std::string& database, std::function<void()> on_commit) {
  impl_ = std::make_unique<Impl>();
  Status status = Store::open(database, Access::read_write, {}, impl_->store);
  if (!status.ok()) return status;
  OutboxOptions options;
  options.on_commit = std::move(on_commit);
  return Outbox::attach(impl_->store.connection(), options, impl_->outbox);
}

sqlite3* Producer::connection() { return impl_->store.connection(); }

Status Producer::write_row(std::int64_t value) {
  return insert_row(connection(), impl_->row, value);
}

Status Producer::emit() {
  Status status = impl_->store.begin();
  if (!status.ok()) return status;
  status = write_row(1);
  if (status.ok()) status = impl_->outbox.emit(reading());
  if (status.ok()) return impl_->store.commit();
  (void)impl_->store.rollback();  // the first error is the one that counts
  return status;
}

Status Producer::emit_batch(std::int64_t events) {
  Status status = impl_->store.begin();
  for (std::int64_t i = 0; i < events && status.ok(); ++i) status = impl_->outbox.emit(reading());
  return status.ok() ? impl_->store.commit() : status;
}

struct Producers::Impl {
  Writer writer;
  Statement row;  // after writer: finalized before its connection closes
};

Producers::Producers() = default;
Producers::~Producers() = default;

Status Producers::open(const std::string& database) {
  impl_ = std::make_unique<Impl>();
  return Writer::open(database, {}, impl_->writer);
}

Status Producers::emit() {
  return impl_->writer.run([this](sqlite3* db, Outbox& outbox) {
    const Status status = insert_row(db, impl_->row, 1);
    return status.ok() ? outbox.emit(reading()) : status;
  });
}

Status create_database(const std::string& path) {
  Status status = Store::init(path, InitOptions(), nullptr);
  Store store;
  if (status.ok()) status = Store::open(path, Access::read_write, {}, store);
  Statement table;
  if (status.ok()) status = table.prepare(store.connection(), kTable);
  return status.ok() ? table.run("bench") : status;
}

Status fill(Bench& bench, const std::string& database, std::int64_t events) {
  Producer producer;
  Status status = producer.open(database);
  while (events > 0 && status.ok() && !bench.signals.stop_asked()) {
    const std::int64_t batch = events < kFillBatchEvents ? events : kFillBatchEvents;
    status = producer.emit_batch(batch);
    events -= batch;
  }
  return status;
}

std::string_view payload() {
  static const std::string text = make_payload();
  return text;
}

}  // namespace holdfast::cli::bench
