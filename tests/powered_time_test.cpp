#include "powered_time.hpp"

#include <doctest/doctest.h>

#include "support/command_line.hpp"
#include "support/connection.hpp"
#include "support/manual_clock.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr std::int64_t kSecond = 1'000, kHour = 3'600'000, kDay = 24 * kHour;

struct Fixture {
  TemporaryDirectory directory;
  ManualClock clock;
  std::unique_ptr<Connection> app;

  Fixture() {
    make_database(directory.file("app.db"), "upstream", &clock);
    app = std::make_unique<Connection>(directory.file("app.db"));
  }
  std::int64_t samples() const { return app->number("SELECT count(*) FROM holdfast_time"); }
  bool sampled() {
    const std::int64_t before = samples();
    must(sample_time(*app, clock, false));
    return samples() > before;
  }
  std::int64_t powered() {
    std::int64_t ms = -1;
    must(powered_now(*app, clock, ms));
    return ms;
  }
  std::int64_t cutoff(std::int64_t age_ms) {
    std::int64_t seq = -1;
    must(cutoff_seq(*app, clock, age_ms, seq));
    return seq;
  }
  // One event now; its created_at is what the wall clock says.
  void emit() {
    app->run(
        "INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,created_at,payload)"
        " VALUES('t','a','x'," +
        std::to_string(clock.wall_ms()) + ",'{}')");
  }
  std::int64_t age(std::int64_t seq) {
    std::int64_t ms = -1;
    must(event_age(
        *app, clock, seq,
        app->number("SELECT created_at FROM outbox_event WHERE seq=" + std::to_string(seq)), ms));
    return ms;
  }
};

}  // namespace

TEST_CASE(
    "a sample is taken at the start, hourly, after a boot and after a clock step only (G6, G7)") {
  Fixture f;
  CHECK(f.samples() == 1);
  CHECK_FALSE(f.sampled());
  f.clock.advance(kHour - 1);
  CHECK_FALSE(f.sampled());
  f.clock.advance(1);
  CHECK(f.sampled());
  f.clock.set_wall(f.clock.wall_ms() + 1'500);  // within what NTP slews
  CHECK_FALSE(f.sampled());
  f.clock.set_wall(f.clock.wall_ms() + 5 * kSecond);
  CHECK(f.sampled());
  CHECK_FALSE(f.sampled());
  f.clock.reboot(kHour);
  CHECK(f.sampled());
  f.clock.reboot(kHour, false);
  CHECK(f.sampled());
  CHECK_FALSE(f.sampled());
  f.clock.set_wall(ManualClock::kStartWallMs + kDay);  // NTP has found the time
  CHECK(f.sampled());
  must(sample_time(*f.app, f.clock, true));
}

TEST_CASE("powered time never goes back and is not moved by the wall clock (G7)") {
  Fixture f;
  const std::int64_t start = f.powered();
  f.clock.advance(kHour);
  CHECK(f.powered() == start + kHour);
  for (const std::int64_t wall : {std::int64_t{0}, ManualClock::kStartWallMs + 5 * 365 * kDay}) {
    f.clock.set_wall(wall);
    CHECK(f.powered() == start + kHour);
    f.sampled();
    CHECK(f.powered() == start + kHour);
  }
}

TEST_CASE("time switched off counts only if the wall clock was known at both ends (G7)") {
  Fixture f;
  f.clock.advance(kHour);
  must(sample_time(*f.app, f.clock, true));
  const std::int64_t before = f.powered();
  f.clock.reboot(3 * kDay);
  f.clock.advance(kSecond);
  CHECK(f.powered() == before + 3 * kDay + kSecond);
  must(sample_time(*f.app, f.clock, true));
  const std::int64_t again = f.powered();
  f.clock.reboot(3 * kDay, false);  // up in 1970
  f.clock.advance(kSecond);
  CHECK(f.powered() == again + kSecond);
}

TEST_CASE("what is older than an age is known by samples, the late side winning (G7)") {
  Fixture f;
  f.emit();  // 1
  CHECK(f.cutoff(0) == 0);
  f.clock.advance(kHour);
  CHECK(f.sampled());  // event 1 is older than this
  f.emit();            // 2
  f.clock.advance(kDay);
  CHECK(f.cutoff(kDay) == 1);
  CHECK(f.cutoff(kDay + 1) == 0);
  CHECK(f.sampled());
  CHECK(f.cutoff(0) == 2);
  f.clock.set_wall(0);
  CHECK(f.cutoff(0) == 2);
  CHECK(f.cutoff(kDay) == 1);
}

TEST_CASE("a wrong clock makes an event's age wrong by no more than two samples are apart (G7)") {
  Fixture f;
  f.clock.set_wall(0);  // 1970
  f.sampled();
  f.emit();  // 1: "1970"
  f.clock.advance(10 * kSecond);
  f.clock.set_wall(ManualClock::kStartWallMs);
  CHECK(f.sampled());
  f.emit();  // 2: right
  f.clock.advance(20 * kSecond);
  CHECK(f.age(1) >= 20 * kSecond);
  CHECK(f.age(1) <= 30 * kSecond);
  CHECK(f.age(2) == 20 * kSecond);
  f.clock.set_wall(ManualClock::kStartWallMs + 5 * 365 * kDay);
  CHECK(f.age(2) <= 20 * kSecond);
  CHECK(f.age(2) >= 0);
  f.clock.set_wall(ManualClock::kStartWallMs - kDay);
  CHECK(f.age(2) >= 0);
}

TEST_CASE("a damaged sample overflows nothing and stops nothing (G10)") {  // UBSan is the judge
  for (const char* time : {"9223372036854775807", "-9223372036854775807-1"}) {
    CAPTURE(time);
    Fixture f;
    f.emit();
    f.app->run(std::string("UPDATE holdfast_time SET powered_ms=") + time + ",boot_ms=" + time +
               ",wall_ms=" + time);
    CHECK(f.powered() >= 0);
    CHECK(f.age(1) >= 0);
    CHECK(f.cutoff(kHour) >= 0);
    f.clock.advance(2 * kHour);
    must(sample_time(*f.app, f.clock, false));
    f.emit();
    CHECK(f.age(2) >= 0);
    f.clock.reboot(kDay);
    must(sample_time(*f.app, f.clock, false));
    CHECK(f.powered() >= 0);
  }
}
