#include "event_time.hpp"

#include <doctest/doctest.h>

#include "schema.hpp"
#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr std::int64_t kSecond = 1'000, kHour = 3'600'000, kDay = 24 * kHour;
constexpr std::int64_t kRight = ManualClock::kStartWallMs;

// A board without a battery-backed clock: its wall clock is in 1970 until `set`.
struct Board {
  TemporaryDirectory directory;
  ManualClock clock;
  std::unique_ptr<Connection> app;

  Board() {
    make_database(directory.file("app.db"), "upstream", &clock);
    app = std::make_unique<Connection>(directory.file("app.db"));
    boot();
  }
  void boot() {
    clock.reboot(kHour, false);
    sample();
  }
  void sample() { must(sample_time(*app, clock, true)); }
  // The right time is kRight plus what passed since boot.
  std::int64_t right() const { return kRight + clock.boot_ms(); }
  void set_clock() {
    clock.set_wall(right());
    sample();
  }
  // Plain SQL, with what the clock says as its created_at, or the producer's own.
  std::int64_t emit(std::int64_t created_at = -1) {
    app->run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,created_at,payload)"
        " VALUES('t','a','x'," +
        std::to_string(created_at < 0 ? clock.wall_ms() : created_at) + ",'{}')");
    return app->number("SELECT max(seq) FROM outbox_event");
  }
  std::int64_t raw(std::int64_t seq) const {
    return app->number("SELECT created_at FROM outbox_event WHERE seq=" + std::to_string(seq));
  }
  std::int64_t created(std::int64_t seq) {
    std::int64_t ms = raw(seq);
    must(EventTimes(*app, clock).correct(seq, ms));
    return ms;
  }
};

}  // namespace

TEST_CASE("an event from before the clock was set gets its exact time once it is set (G7)") {
  Board board;
  board.clock.advance(7'003);
  const std::int64_t at = board.right(), seq = board.emit();
  board.clock.advance(50 * kSecond);
  CHECK(board.created(seq) == 7'003);  // what the clock said; nothing better is known
  board.clock.set_wall(board.right());
  CHECK(board.created(seq) == at);  // now counts as a sample
  board.sample();
  CHECK(board.created(seq) == at);
  board.clock.advance(3 * kHour);
  CHECK(board.created(seq) == at);
  board.boot();  // also when that boot is over
  CHECK(board.created(seq) == at);
  CHECK(board.raw(seq) == 7'003);  // the row is a fact and stays
}

TEST_CASE("hours of samples in 1970 do not make the time less exact (G7)") {
  Board board;
  std::vector<std::int64_t> at;
  for (int hour = 0; hour < 5; ++hour) {
    board.clock.advance(kHour / 2);
    at.push_back(board.right());
    CHECK(board.emit() == hour + 1);
    board.clock.advance(kHour / 2);
    board.sample();
  }
  board.set_clock();
  EventTimes times(*board.app, board.clock);
  for (std::int64_t seq = 1; seq <= 5; ++seq) {
    std::int64_t ms = board.raw(seq);
    must(times.correct(seq, ms));
    CHECK(ms == at[static_cast<std::size_t>(seq - 1)]);
  }
}

TEST_CASE("a boot whose clock was never set tells no time; another boot's clock is not used (G7)") {
  Board board;
  board.clock.advance(kSecond);
  const std::int64_t first = board.emit();
  board.clock.advance(kSecond);
  board.sample();
  board.boot();
  board.clock.advance(kSecond);
  const std::int64_t at = board.right(), second = board.emit();
  board.set_clock();
  CHECK(board.created(first) == kSecond);
  CHECK_FALSE(wall_known(board.created(first)));
  CHECK(board.created(second) == at);  // the control: in the same database, this one is told
}

TEST_CASE("an event that may be of either of two boots is not guessed (G7)") {
  Board board;
  board.clock.advance(kSecond);
  board.set_clock();  // of the boot before
  board.clock.reboot(kHour, false);
  board.clock.advance(10 * kSecond);
  const std::int64_t seq = board.emit();  // before anything sampled this boot
  board.clock.advance(kSecond);
  board.sample();
  board.set_clock();
  CHECK(board.created(seq) == 10 * kSecond);
  const std::int64_t at = board.right();
  board.clock.set_wall(10 * kSecond);
  board.sample();
  const std::int64_t control = board.emit();
  board.set_clock();
  CHECK(board.created(control) == at);  // the same raw time, between samples of one boot
}

TEST_CASE("a step while the clock is unset leaves an error no larger than samples are apart (G7)") {
  Board board;
  board.clock.advance(kSecond);
  const std::int64_t at = board.right(), seq = board.emit();
  board.clock.advance(30 * kSecond);
  board.clock.set_wall(1'600'000'000'000);  // 2020: set, but to nothing that can be right
  bool due = false;
  must(time_sample_due(*board.app, board.clock, due));
  CHECK(due);
  board.clock.advance(10 * kSecond);
  const std::int64_t later_at = board.right(), later = board.emit();
  board.clock.advance(kSecond);
  board.sample();
  board.set_clock();
  CHECK(board.created(seq) == at);
  CHECK(board.created(later) == later_at);
}

TEST_CASE("a clock that is set back to 1970 is known from before and from after (G7)") {
  Board board;
  board.set_clock();
  board.clock.advance(kSecond);
  board.clock.set_wall(5);
  board.clock.advance(kSecond);
  const std::int64_t at = board.right(), seq = board.emit();
  board.clock.advance(kSecond);
  CHECK(board.created(seq) == at);
  board.sample();
  board.sample();
  CHECK(board.created(seq) == at);
  board.set_clock();
  CHECK(board.created(seq) == at);
}

TEST_CASE("a time that the producer gave is its own, however old (G7)") {
  Board board;
  board.clock.advance(kSecond);
  const std::int64_t old = board.emit(631'152'000'000);    // 1990
  const std::int64_t recent = board.emit(kRight - 5'000);  // as it says
  board.clock.advance(kSecond);
  board.set_clock();
  CHECK(board.created(old) == 631'152'000'000);
  CHECK(board.created(recent) == kRight - 5'000);
  const std::int64_t while_set = board.emit(1'500);
  board.clock.advance(kSecond);
  CHECK(board.created(while_set) == 1'500);
  board.sample();
  CHECK(board.created(while_set) == 1'500);
}

TEST_CASE("an event of another device keeps the time it came with (G7)") {
  Board board;
  board.clock.advance(kSecond);
  EventRecord event = sensor_record("a", board.emit());
  event.created_at_ms = board.raw(event.seq);
  board.clock.advance(kSecond);
  board.set_clock();
  EventRecord forwarded = event;
  forwarded.source_stream = EventId::make_random();
  must(EventTimes(*board.app, board.clock).correct(forwarded));
  CHECK(forwarded.created_at_ms == kSecond);
  must(EventTimes(*board.app, board.clock).correct(event));
  CHECK(event.created_at_ms == kRight + kSecond);
}

TEST_CASE("samples that older software wrote of an unset clock (NULL) tell no time (G7)") {
  Board board;
  board.clock.advance(kSecond);
  const std::int64_t seq = board.emit();
  board.clock.advance(kSecond);
  board.set_clock();
  CHECK(board.created(seq) == kRight + kSecond);
  board.app->run("UPDATE holdfast_time SET wall_ms=NULL WHERE wall_ms<1704067200000");
  CHECK(board.created(seq) == kSecond);
}

TEST_CASE("a damaged sample is no crash and no invented time (G10)") {
  for (const char* damage :
       {"boot_ms=9223372036854775807", "boot_ms=-9223372036854775807-1",
        "wall_ms=9223372036854775807", "wall_ms=-9223372036854775807-1", "wall_ms='1970'",
        "wall_ms=x'ff'", "boot_id=x'00'", "boot_ms='soon'"}) {
    CAPTURE(damage);
    Board board;
    board.clock.advance(kSecond);
    const std::int64_t seq = board.emit();
    board.clock.advance(kSecond);
    board.set_clock();
    board.app->run(std::string("UPDATE holdfast_time SET ") + damage);
    const std::int64_t ms = board.created(seq);
    CHECK((ms == kSecond || (ms >= kRight && ms <= kRight + kDay)));
  }
}

TEST_CASE("a purge leaves the samples that pending events still need (G7)") {
  Board board;
  board.set_clock();
  for (int i = 0; i < 3; ++i) {
    board.clock.advance(kSecond);
    board.emit();
    board.sample();
  }
  board.clock.set_wall(5);
  for (int i = 0; i < 3; ++i) {
    board.clock.advance(kSecond);
    board.sample();
    board.emit();
    board.sample();
  }
  board.clock.advance(kSecond);
  const std::int64_t at = board.right(), seq = board.emit();
  board.clock.advance(kSecond);
  board.sample();
  CHECK(board.created(seq) == at);
  board.app->run("UPDATE outbox_destination SET acked_seq=6,claimed_seq=6");
  const std::int64_t before = board.app->number("SELECT count(*) FROM holdfast_time");
  StoreOptions options;
  options.clock = &board.clock;
  Store store;
  must(Store::open(board.directory.file("app.db"), Access::read_write, options, store));
  PurgeOptions purge;
  purge.outbox_older_than_ms = 0;
  PurgeResult result;
  must(store.purge(purge, result));
  CHECK(result.outbox_rows == 6);
  CHECK(board.app->number("SELECT count(*) FROM holdfast_time") < before - 5);
  CHECK(board.created(seq) == at);
  // The control: without the one that the trim spares, the time would be lost.
  board.app->run("DELETE FROM holdfast_time WHERE wall_ms>=1704067200000");
  CHECK_FALSE(wall_known(board.created(seq)));
}

TEST_CASE("an event with a good time costs no look at the samples (G6)") {
  Board board;
  board.set_clock();
  const std::int64_t seq = board.emit();
  std::int64_t ms = board.raw(seq);
  board.app->run("DROP TABLE holdfast_time");  // a look would fail
  must(EventTimes(*board.app, board.clock).correct(seq, ms));
  CHECK(ms == board.raw(seq));
  std::int64_t unset = 5;
  CHECK_FALSE(EventTimes(*board.app, board.clock).correct(seq, unset).ok());
}
