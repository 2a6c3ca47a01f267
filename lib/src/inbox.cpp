#include "inbox.hpp"

#include <algorithm>
#include <chrono>

#include "event_row.hpp"
#include "identity.hpp"
#include "powered_time.hpp"
#include "schema.hpp"

namespace holdfast {

HandlerResult HandlerResult::retry_later(std::int64_t delay_ms, std::string reason) {
  return {Kind::retry_later, delay_ms, std::move(reason)};
}

HandlerResult HandlerResult::reject(std::string reason) {
  return {Kind::reject, 0, std::move(reason)};
}

std::string handler_bucket_name(std::int64_t le_us) {
  return le_us == INT64_MAX ? "handler_us_le_inf" : "handler_us_le_" + std::to_string(le_us);
}

Status InboxWriter::begin() {
  Status status = sample_time(db_, *clock_, false);
  if (status.ok()) status = powered_now(db_, *clock_, powered_ms_);
  wall_ms_ = std::max<std::int64_t>(0, clock_->wall_ms());
  return status;
}

Status InboxWriter::finish() {
  for (const auto& [name, delta] : counters_) {
    Status status = counter_.prepare(db_, sql::kCounterAdd);
    if (status.ok()) status = counter_.bind_text(1, name).bind(2, delta).run("counter");
    if (!status.ok()) return status;
  }
  counters_.clear();
  return Status();
}

Status InboxWriter::insert(const EventRecord& event, std::string_view consumer,
                           const char* status_text, bool& fresh) {
  Status status = insert_.prepare(db_, sql::kInboxInsert);
  if (!status.ok()) return status;
  status = insert_.bind_id(1, event.id)
               .bind_text(2, consumer)
               .bind_text(3, status_text)
               .bind(4, powered_ms_)
               .bind(5, wall_ms_)
               .run("inbox");
  fresh = status.ok() && changed_rows(db_) == 1;
  return status;
}

Status InboxWriter::find(const EventRecord& event, std::string_view consumer,
                         std::string& status_text) {
  Status status = status_.prepare(db_, sql::kInboxStatus);
  if (!status.ok()) return status;
  status_.bind_id(1, event.id).bind_text(2, consumer);
  status_text.clear();
  if (status_.step(status, "inbox")) status_text = std::string(status_.column_text(0));
  status_.reset();
  return status;
}

Status InboxWriter::finish_row(const EventRecord& event, std::string_view consumer,
                               const char* status_text) {
  Status status = finish_.prepare(db_, sql::kInboxFinish);
  if (!status.ok()) return status;
  return finish_.bind_id(1, event.id)
      .bind_text(2, consumer)
      .bind_text(3, status_text)
      .bind(4, powered_ms_)
      .bind(5, wall_ms_)
      .run("inbox");
}

Status InboxWriter::stale(const EventRecord& event, std::string_view consumer, bool& is_stale) {
  is_stale = false;
  if (event.aggregate_version == kNoVersion) return Status();
  Status status = version_get_.prepare(db_, sql::kVersionGet);
  if (!status.ok()) return status;
  version_get_.bind_text(1, consumer)
      .bind_id(2, event.source_stream)
      .bind(3, static_cast<std::int64_t>(event.lane))
      .bind_text(4, event.aggregate_type)
      .bind_text(5, event.aggregate_id);
  if (version_get_.step(status, "inbox"))
    is_stale = event.aggregate_version <= version_get_.column_int(0);
  version_get_.reset();
  return status;
}

Status InboxWriter::set_version(const EventRecord& event, std::string_view consumer) {
  if (event.aggregate_version == kNoVersion) return Status();
  Status status = version_set_.prepare(db_, sql::kVersionSet);
  if (!status.ok()) return status;
  return version_set_.bind_text(1, consumer)
      .bind_id(2, event.source_stream)
      .bind(3, static_cast<std::int64_t>(event.lane))
      .bind_text(4, event.aggregate_type)
      .bind_text(5, event.aggregate_id)
      .bind(6, event.aggregate_version)
      .run("inbox");
}

Status InboxWriter::append(const EventRecord& event) {
  Status status = append_.prepare(db_, sql::kEventForward);
  if (!status.ok()) return status;
  const std::string id_text = event.id.text();
  bind_record(append_, event, id_text);
  status = append_.run("log");
  append_.reset();
  return status;
}

Status InboxWriter::fail(const EventRecord& event, std::string_view consumer,
                         const std::string& reason) {
  count("handler_failures");
  Status status = fail_.prepare(db_, sql::kInboxFail);
  if (!status.ok()) return status;
  const std::string text = reason.substr(0, kMaxReasonBytes);
  return fail_.bind_id(1, event.id)
      .bind_text(2, consumer)
      .bind(3, powered_ms_)
      .bind(4, wall_ms_)
      .bind_text_or_null(5, text)
      .run("inbox");
}

void InboxWriter::time_handler(std::int64_t us) {
  for (const std::int64_t le : kHandlerBucketsUs) {
    if (us > le) continue;
    ++counters_[handler_bucket_name(le)];
    break;
  }
  counters_[kHandlerSumCounter] += us;
}

// The savepoint holds the inbox row and what the handler wrote.
Status InboxWriter::run_handler(const EventRecord& event, std::string_view consumer,
                                const Handler& handler, HandlerResult& result) {
  const auto began = std::chrono::steady_clock::now();
  result = handler(event, db_);
  time_handler(std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::steady_clock::now() - began)
                   .count());
  if (!in_transaction(db_))
    return Status::error(
        Code::misuse,
        "the handler of consumer %.*s ended the transaction (or the disk is full); "
        "everything since its begin is undone",
        static_cast<int>(consumer.size()), consumer.data());
  if (result.kind != HandlerResult::Kind::done) {
    Status status = rollback_.prepare(db_, sql::kSavepointRollback);
    if (status.ok()) status = rollback_.run("savepoint");
    if (!status.ok()) return status;
  }
  Status status = release_.prepare(db_, sql::kSavepointRelease);
  if (status.ok()) status = release_.run("savepoint");
  if (status.ok() && result.kind != HandlerResult::Kind::done)
    status = fail(event, consumer, result.reason);
  return status;
}

Status InboxWriter::apply(const EventRecord& event, std::string_view consumer,
                          const Handler& handler, VersionGuard guard, Applied& applied,
                          HandlerResult& result) {
  result = HandlerResult::done();
  bool is_stale = false;
  Status status;
  if (guard == VersionGuard::skip_stale) status = stale(event, consumer, is_stale);
  if (status.ok() && handler && !is_stale) {
    status = savepoint_.prepare(db_, sql::kSavepoint);
    if (status.ok()) status = savepoint_.run("savepoint");
  }
  bool fresh = false;
  const char* final_status = is_stale ? "STALE" : "DONE";
  if (status.ok()) status = insert(event, consumer, final_status, fresh);
  if (!status.ok()) return status;
  if (!fresh) {
    std::string before;
    status = find(event, consumer, before);
    if (!status.ok()) return status;
    if (before != "FAILED") {
      applied = Applied::duplicate;
      count("inbox_duplicates");
      if (!handler || is_stale) return Status();
      status = release_.prepare(db_, sql::kSavepointRelease);
      return status.ok() ? release_.run("savepoint") : status;
    }
    status = finish_row(event, consumer, final_status);
    if (!status.ok()) return status;
  }
  if (is_stale) {
    applied = Applied::stale;
    count("inbox_stale");
    return Status();
  }
  status = handler ? run_handler(event, consumer, handler, result) : append(event);
  if (!status.ok()) return status;
  switch (result.kind) {
    case HandlerResult::Kind::done:
      applied = Applied::done;
      count("inbox_applied");
      return guard == VersionGuard::skip_stale ? set_version(event, consumer) : Status();
    case HandlerResult::Kind::retry_later:
      applied = Applied::retry_later;
      count("inbox_later");
      return Status();
    case HandlerResult::Kind::reject:
      applied = Applied::rejected;
      count("inbox_rejected");
      return Status();
  }
  return Status();
}

// --- the public class --------------------------------------------------------------------------

struct Inbox::Impl {
  sqlite3* db = nullptr;
  InboxOptions options;
  std::unique_ptr<InboxWriter> writer;
};

Inbox::Inbox() = default;
Inbox::~Inbox() = default;
Inbox::Inbox(Inbox&&) noexcept = default;
Inbox& Inbox::operator=(Inbox&&) noexcept = default;

Status Inbox::attach(sqlite3* db, const InboxOptions& options, Inbox& out) {
  if (db == nullptr) return Status::error(Code::misuse, "attach: the connection is null");
  auto impl = std::make_unique<Impl>();
  impl->db = db;
  impl->options = options;
  const std::string path = main_file(db);
  if (options.busy_timeout_ms > 0) ensure_busy_wait(db, options.busy_timeout_ms);
  Status status = check_schema(db, path);
  if (status.ok()) status = check_durability(db, path);
  if (!status.ok()) return status;
  impl->writer =
      std::make_unique<InboxWriter>(db, options.clock != nullptr ? *options.clock : system_clock());
  out.impl_ = std::move(impl);
  return Status();
}

Status Inbox::once(const EventRecord& event, std::string_view consumer, const Handler& fn,
                   Applied& applied) {
  if (!impl_) return Status::error(Code::misuse, "once: the inbox is not attached");
  if (!fn) return Status::error(Code::misuse, "once: no function was given");
  if (consumer.empty() || consumer.size() > kMaxConsumerBytes || !is_utf8(consumer))
    return Status::error(Code::invalid, "consumer: give 1 to %d bytes of UTF-8",
                         static_cast<int>(kMaxConsumerBytes));
  Status status = validate(event);
  if (!status.ok()) return status;
  const bool own = !in_transaction(impl_->db);
  Transaction transaction(impl_->db);
  if (own) status = transaction.begin();
  if (status.ok()) status = impl_->writer->begin();
  HandlerResult result;
  if (status.ok())
    status = impl_->writer->apply(event, consumer, fn, impl_->options.guard, applied, result);
  if (status.ok()) status = impl_->writer->finish();
  if (!status.ok()) {
    impl_->writer->forget();
    return status;
  }
  return own ? transaction.commit() : Status();
}

}  // namespace holdfast
