#include "schema.hpp"

#include <cctype>

#include "platform.hpp"

namespace holdfast {

namespace sql {

// clang-format off
const char* const kSchemaV1 = R"sql(
CREATE TABLE holdfast_meta(
  key TEXT PRIMARY KEY NOT NULL,
  value
) WITHOUT ROWID;

CREATE TABLE outbox_event(
  seq INTEGER PRIMARY KEY CONSTRAINT seq_is_positive CHECK(seq>0),
  event_id TEXT NOT NULL DEFAULT (printf('%08x-%04x-7%03x-%04x-%012x',
      CAST((julianday('now')-2440587.5)*86400000.0 AS INTEGER)>>16,
      CAST((julianday('now')-2440587.5)*86400000.0 AS INTEGER)&65535,
      random()&4095, 32768|(random()&16383), random()&281474976710655))
    CONSTRAINT event_id_is_a_uuid CHECK(length(event_id)=36 AND
      event_id GLOB '????????-????-????-????-????????????' AND
      replace(event_id,'-','') NOT GLOB '*[^0-9a-fA-F]*'),
  event_type TEXT NOT NULL
    CONSTRAINT event_type_is_1_to_128_bytes CHECK(length(CAST(event_type AS BLOB)) BETWEEN 1 AND 128),
  aggregate_type TEXT NOT NULL
    CONSTRAINT aggregate_type_is_1_to_128_bytes CHECK(length(CAST(aggregate_type AS BLOB)) BETWEEN 1 AND 128),
  aggregate_id TEXT NOT NULL
    CONSTRAINT aggregate_id_is_1_to_256_bytes CHECK(length(CAST(aggregate_id AS BLOB)) BETWEEN 1 AND 256),
  aggregate_version INTEGER
    CONSTRAINT aggregate_version_is_an_integer CHECK(typeof(aggregate_version) IN ('null','integer')),
  created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now')-2440587.5)*86400000.0 AS INTEGER))
    CONSTRAINT created_at_is_ms CHECK(typeof(created_at)='integer' AND created_at BETWEEN 0 AND 253402300799999),
  content_type TEXT
    CONSTRAINT content_type_is_at_most_128_bytes CHECK(length(CAST(content_type AS BLOB))<=128),
  trace TEXT
    CONSTRAINT trace_is_at_most_128_bytes CHECK(length(CAST(trace AS BLOB))<=128),
  headers TEXT
    CONSTRAINT headers_is_a_json_object_of_at_most_8192_bytes CHECK(headers IS NULL OR
      (length(CAST(headers AS BLOB))<=8192 AND trim(headers) GLOB '{*}')),
  lane INTEGER NOT NULL DEFAULT 0
    CONSTRAINT lane_is_0_or_1 CHECK(typeof(lane)='integer' AND lane IN (0,1)),
  source TEXT,
  source_stream BLOB,
  source_seq INTEGER,
  payload BLOB NOT NULL
    CONSTRAINT payload_is_text_or_blob CHECK(typeof(payload) IN ('text','blob'))
    CONSTRAINT payload_is_at_most_921600_bytes CHECK(length(CAST(payload AS BLOB))<=921600)
);
CREATE INDEX outbox_event_urgent ON outbox_event(lane,seq) WHERE lane>0;

CREATE TABLE outbox_destination(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
    CONSTRAINT name_is_letters_digits_and_dashes CHECK(length(name) BETWEEN 1 AND 64 AND
      name NOT GLOB '*[^A-Za-z0-9._-]*'),
  acked_seq INTEGER NOT NULL DEFAULT 0,
  acked_id BLOB,
  claimed_seq INTEGER NOT NULL DEFAULT 0,
  base_seq INTEGER NOT NULL DEFAULT 0,
  urgent_acked_seq INTEGER NOT NULL DEFAULT 0,
  urgent_acked_id BLOB,
  urgent_claimed_seq INTEGER NOT NULL DEFAULT 0,
  urgent_base_seq INTEGER NOT NULL DEFAULT 0,
  peer_store BLOB,
  peer_stream BLOB,
  lease_owner TEXT NOT NULL DEFAULT '',
  lease_boot_id TEXT NOT NULL DEFAULT '',
  lease_until_ms INTEGER NOT NULL DEFAULT 0,
  lease_epoch INTEGER NOT NULL DEFAULT 0,
  times_boot_id TEXT NOT NULL DEFAULT '',
  control INTEGER NOT NULL DEFAULT 0,
  link_failures INTEGER NOT NULL DEFAULT 0,
  last_error TEXT,
  last_error_at INTEGER,
  sent INTEGER NOT NULL DEFAULT 0,
  duplicates INTEGER NOT NULL DEFAULT 0,
  rejected INTEGER NOT NULL DEFAULT 0,
  retries INTEGER NOT NULL DEFAULT 0,
  rewinds INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE outbox_exception(
  destination_id INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  status TEXT NOT NULL CHECK(status IN ('RETRY','HELD','DEAD')),
  attempts INTEGER NOT NULL DEFAULT 0,
  next_attempt_ms INTEGER NOT NULL DEFAULT 0,
  reported INTEGER NOT NULL DEFAULT 0,
  last_error TEXT,
  PRIMARY KEY(destination_id,seq)
) WITHOUT ROWID;

CREATE TABLE outbox_gap(
  destination_id INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  count INTEGER NOT NULL,
  reason TEXT NOT NULL,
  detail TEXT,
  created_at INTEGER NOT NULL,
  reported INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(destination_id,lane,first_seq)
) WITHOUT ROWID;

CREATE TRIGGER outbox_event_guard_replace BEFORE INSERT ON outbox_event
WHEN EXISTS(SELECT 1 FROM outbox_event WHERE seq=NEW.seq)
BEGIN SELECT RAISE(ABORT,'outbox_event: seq exists already; leave seq out, SQLite assigns it'); END;

CREATE TRIGGER outbox_event_guard_order AFTER INSERT ON outbox_event
WHEN (NEW.seq>1 AND NOT EXISTS(SELECT 1 FROM outbox_event WHERE seq=NEW.seq-1))
  OR EXISTS(SELECT 1 FROM outbox_event WHERE seq>NEW.seq)
  OR (NEW.seq=1 AND EXISTS(SELECT 1 FROM outbox_destination WHERE acked_seq>0 OR urgent_acked_seq>0))
BEGIN SELECT RAISE(ABORT,'outbox_event: seq is not the next one; leave seq out, SQLite assigns it'); END;

CREATE TRIGGER outbox_event_guard_update BEFORE UPDATE ON outbox_event
BEGIN SELECT RAISE(ABORT,'outbox_event: events are facts and are never updated; insert a new one'); END;

CREATE TRIGGER outbox_event_guard_newest BEFORE DELETE ON outbox_event
WHEN OLD.seq=(SELECT max(seq) FROM outbox_event)
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER outbox_event_guard_pending BEFORE DELETE ON outbox_event
WHEN OLD.seq<(SELECT max(seq) FROM outbox_event) AND EXISTS(
  SELECT 1 FROM outbox_destination d WHERE
    (OLD.seq>CASE OLD.lane WHEN 1 THEN d.urgent_acked_seq ELSE d.acked_seq END
      AND NOT EXISTS(SELECT 1 FROM outbox_gap g WHERE g.destination_id=d.id AND g.lane=OLD.lane
        AND g.first_seq<=OLD.seq AND g.last_seq>=OLD.seq))
    OR EXISTS(SELECT 1 FROM outbox_exception x WHERE x.destination_id=d.id AND x.seq=OLD.seq))
BEGIN SELECT RAISE(ABORT,'outbox_event: not sent to every destination yet; use holdfast discard'); END;

CREATE VIEW outbox_status AS
SELECT e.seq,e.event_id,d.name AS destination,
  CASE
    WHEN x.status IS NOT NULL THEN x.status
    WHEN EXISTS(SELECT 1 FROM outbox_gap g WHERE g.destination_id=d.id AND g.lane=e.lane
      AND g.first_seq<=e.seq AND g.last_seq>=e.seq) THEN 'GONE'
    WHEN e.seq<=CASE e.lane WHEN 1 THEN d.urgent_acked_seq ELSE d.acked_seq END THEN 'SENT'
    WHEN d.lease_owner<>'' AND
      e.seq<=CASE e.lane WHEN 1 THEN d.urgent_claimed_seq ELSE d.claimed_seq END THEN 'PROCESSING'
    ELSE 'PENDING'
  END AS status,
  ifnull(x.attempts,0) AS attempts,x.last_error,
  e.event_type,e.aggregate_type,e.aggregate_id,e.created_at,e.lane
FROM outbox_event e CROSS JOIN outbox_destination d
LEFT JOIN outbox_exception x ON x.destination_id=d.id AND x.seq=e.seq;

CREATE TABLE inbox_event(
  event_id BLOB NOT NULL,
  consumer TEXT NOT NULL,
  status TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  received_ms INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  last_error TEXT,
  PRIMARY KEY(event_id,consumer)
) WITHOUT ROWID;

CREATE TABLE inbox_stream(
  stream BLOB NOT NULL,
  lane INTEGER NOT NULL,
  consumer TEXT NOT NULL,
  device TEXT NOT NULL,
  mark_seq INTEGER NOT NULL,
  mark_id BLOB NOT NULL,
  seen_at INTEGER NOT NULL,
  PRIMARY KEY(stream,lane,consumer)
) WITHOUT ROWID;

CREATE TABLE inbox_gap(
  stream BLOB NOT NULL,
  lane INTEGER NOT NULL,
  consumer TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  count INTEGER NOT NULL,
  state TEXT NOT NULL CHECK(state IN ('SKIPPED','LATER','REJECTED','HELD','DEAD','GONE')),
  aggregate_type TEXT,
  aggregate_id TEXT,
  origin BLOB,
  reason TEXT,
  at INTEGER NOT NULL,
  PRIMARY KEY(stream,lane,consumer,first_seq)
) WITHOUT ROWID;

CREATE TABLE inbox_aggregate(
  consumer TEXT NOT NULL,
  stream BLOB NOT NULL,
  lane INTEGER NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY(consumer,stream,lane,aggregate_type,aggregate_id)
) WITHOUT ROWID;

CREATE TABLE holdfast_time(
  id INTEGER PRIMARY KEY,
  powered_ms INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  boot_ms INTEGER NOT NULL,
  wall_ms INTEGER,
  last_seq INTEGER NOT NULL
);

CREATE TABLE holdfast_counter(
  name TEXT PRIMARY KEY NOT NULL,
  value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_audit(
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  action TEXT NOT NULL,
  detail TEXT NOT NULL
);
)sql";

// Caps (G8). Triggers, so that every writer obeys, also plain SQL and software of schema version 1.
// make_room: sent events go first; then, if it may, the oldest unsent ones that no relay has under
// way, with a gap record for each destination that does not have them. drop_from and drop_to are its
// notes: a trigger has no variables.
const char* const kSchemaV2 = R"sql(
INSERT INTO holdfast_meta(key,value) VALUES('max_events',0),('max_bytes',0),('when_full','refuse'),
  ('events',0),('make_room',0),('settled_to',0),('drop_from',0),('drop_to',0);
ALTER TABLE outbox_destination ADD COLUMN capped INTEGER NOT NULL DEFAULT 0;

CREATE VIEW outbox_settled AS
SELECT CASE WHEN upto>=oldest THEN min(upto,oldest+63+excess) ELSE 0 END AS last FROM (
  SELECT CASE WHEN c.value>0 THEN max(0,n.value-c.value) ELSE 0 END AS excess
  FROM holdfast_meta c,holdfast_meta n WHERE c.key='max_events' AND n.key='events'),(
  SELECT (SELECT ifnull(min(seq),0) FROM outbox_event) AS oldest,
    min((SELECT ifnull(max(seq),0)-1 FROM outbox_event),
      ifnull((SELECT min(first)-1 FROM (
        SELECT (SELECT seq FROM outbox_event WHERE seq>d.acked_seq AND ifnull(lane,0)<>1
          ORDER BY seq LIMIT 1) AS first FROM outbox_destination d
        UNION ALL SELECT (SELECT seq FROM outbox_event WHERE lane>0 AND lane=1
          AND seq>d.urgent_acked_seq ORDER BY seq LIMIT 1) FROM outbox_destination d
        UNION ALL SELECT min(seq) FROM outbox_exception)),9223372036854775807)) AS upto);

CREATE VIEW outbox_pinned AS
SELECT e.seq AS seq FROM outbox_event e WHERE
  EXISTS(SELECT 1 FROM outbox_exception x WHERE x.seq=e.seq)
  OR EXISTS(SELECT 1 FROM outbox_destination d WHERE d.lease_owner<>''
    AND e.seq>CASE e.lane WHEN 1 THEN d.urgent_acked_seq ELSE d.acked_seq END
    AND e.seq<=CASE e.lane WHEN 1 THEN d.urgent_claimed_seq ELSE d.claimed_seq END);

CREATE TRIGGER holdfast_make_room AFTER UPDATE OF value ON holdfast_meta WHEN NEW.key='make_room'
BEGIN
  UPDATE holdfast_meta SET value=(SELECT last FROM outbox_settled) WHERE key='settled_to';
  DELETE FROM outbox_event WHERE seq<=(SELECT value FROM holdfast_meta WHERE key='settled_to');
  UPDATE holdfast_meta SET value=CASE WHEN
      (SELECT value FROM holdfast_meta WHERE key='when_full')='drop_oldest'
      AND (SELECT value FROM holdfast_meta WHERE key='settled_to')=0
    THEN ifnull((SELECT e.seq FROM outbox_event e WHERE e.seq<(SELECT max(seq) FROM outbox_event)
      AND e.seq NOT IN (SELECT seq FROM outbox_pinned p WHERE p.seq=e.seq)
      AND EXISTS(SELECT 1 FROM outbox_destination d
        WHERE e.seq>CASE e.lane WHEN 1 THEN d.urgent_acked_seq ELSE d.acked_seq END)
      ORDER BY e.seq LIMIT 1),0)
    ELSE 0 END WHERE key='drop_from';
  UPDATE holdfast_meta SET value=(SELECT ifnull(max(seq),0) FROM (
      SELECT e.seq AS seq FROM outbox_event e WHERE e.seq BETWEEN f.value AND f.value+63
        AND e.seq<(SELECT max(seq) FROM outbox_event)
        AND NOT EXISTS(SELECT 1 FROM outbox_pinned p WHERE p.seq BETWEEN f.value AND e.seq)))
    FROM holdfast_meta f WHERE f.key='drop_from' AND f.value>0 AND holdfast_meta.key='drop_to';
  UPDATE outbox_destination SET capped=capped+(SELECT count(*) FROM outbox_event e WHERE
      e.seq BETWEEN (SELECT value FROM holdfast_meta WHERE key='drop_from')
        AND (SELECT value FROM holdfast_meta WHERE key='drop_to')
      AND e.seq>CASE e.lane WHEN 1 THEN outbox_destination.urgent_acked_seq
        ELSE outbox_destination.acked_seq END)
    WHERE (SELECT value FROM holdfast_meta WHERE key='drop_from')>0;
  INSERT INTO outbox_gap(destination_id,lane,first_seq,last_seq,count,reason,detail,created_at)
    SELECT d.id,e.lane,
      ifnull((SELECT g.first_seq FROM outbox_gap g WHERE g.destination_id=d.id AND g.lane=e.lane
        AND g.reason='capped' AND g.reported=0 AND g.last_seq<f.value
        AND NOT EXISTS(SELECT 1 FROM outbox_event b WHERE b.seq>g.last_seq AND b.seq<f.value)
        AND NOT EXISTS(SELECT 1 FROM outbox_gap o WHERE o.destination_id=d.id AND o.lane=e.lane
          AND o.first_seq>g.first_seq) ORDER BY g.first_seq DESC LIMIT 1),min(e.seq)),
      max(e.seq),count(*),'capped','the oldest were dropped at the cap',
      max(0,CAST((julianday('now')-2440587.5)*86400000.0 AS INTEGER))
    FROM holdfast_meta f, holdfast_meta t, outbox_event e, outbox_destination d
    WHERE f.key='drop_from' AND t.key='drop_to' AND f.value>0
      AND e.seq BETWEEN f.value AND t.value
      AND e.seq>CASE e.lane WHEN 1 THEN d.urgent_acked_seq ELSE d.acked_seq END
    GROUP BY d.id,e.lane
    ON CONFLICT(destination_id,lane,first_seq) DO UPDATE SET
      last_seq=excluded.last_seq,count=count+excluded.count;
  DELETE FROM outbox_event WHERE (SELECT value FROM holdfast_meta WHERE key='drop_from')>0
    AND seq BETWEEN (SELECT value FROM holdfast_meta WHERE key='drop_from')
      AND (SELECT value FROM holdfast_meta WHERE key='drop_to');
END;

CREATE TRIGGER outbox_event_cap BEFORE INSERT ON outbox_event
WHEN (SELECT value FROM holdfast_meta WHERE key='max_events')>0
  AND (SELECT value FROM holdfast_meta WHERE key='events')
    >=(SELECT value FROM holdfast_meta WHERE key='max_events')
BEGIN
  UPDATE holdfast_meta SET value=value+1 WHERE key='make_room';
  UPDATE holdfast_meta SET value=value+1 WHERE key='make_room'
    AND (SELECT value FROM holdfast_meta WHERE key='events')
      >=(SELECT value FROM holdfast_meta WHERE key='max_events');
  SELECT RAISE(ABORT,'outbox_event: full: max_events is reached; wait until some are sent, or raise it with holdfast init --max-events')
    WHERE (SELECT value FROM holdfast_meta WHERE key='events')
      >=(SELECT value FROM holdfast_meta WHERE key='max_events');
END;

CREATE TRIGGER outbox_event_counted AFTER INSERT ON outbox_event
WHEN (SELECT value FROM holdfast_meta WHERE key='max_events')>0
BEGIN UPDATE holdfast_meta SET value=value+1 WHERE key='events'; END;

CREATE TRIGGER outbox_event_uncounted AFTER DELETE ON outbox_event
WHEN (SELECT value FROM holdfast_meta WHERE key='max_events')>0
BEGIN UPDATE holdfast_meta SET value=value-1 WHERE key='events'; END;
)sql";

// Time to live. emitted_ms is powered time, which SQL does not know: what a producer in plain SQL
// leaves out is dated by the next sample of holdfast_time, and undated_ttl_seq says that one is
// wanted. (No CHECK: it would read every row of a large log during the migration.)
const char* const kSchemaV3 = R"sql(
ALTER TABLE outbox_event ADD COLUMN ttl_ms INTEGER;
ALTER TABLE outbox_event ADD COLUMN emitted_ms INTEGER;
INSERT INTO holdfast_meta(key,value) VALUES('undated_ttl_seq',0);

CREATE TRIGGER outbox_event_ttl AFTER INSERT ON outbox_event
WHEN NEW.ttl_ms IS NOT NULL AND NOT
  (typeof(NEW.ttl_ms)='integer' AND NEW.ttl_ms BETWEEN 1 AND 3153600000000)
BEGIN SELECT RAISE(ABORT,'outbox_event: ttl_ms is 1 ms to 100 years'); END;

CREATE TRIGGER outbox_event_undated AFTER INSERT ON outbox_event
WHEN NEW.ttl_ms IS NOT NULL AND NEW.emitted_ms IS NULL
BEGIN UPDATE holdfast_meta SET value=NEW.seq WHERE key='undated_ttl_seq'; END;
)sql";

// Whose streams are whose, by the certificates of a gateway's devices.
const char* const kSchemaV4 = R"sql(
ALTER TABLE inbox_stream ADD COLUMN events INTEGER NOT NULL DEFAULT 0;
CREATE TABLE inbox_owner(
  stream BLOB PRIMARY KEY NOT NULL,
  name TEXT NOT NULL,
  since_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE inbox_denied(
  name TEXT PRIMARY KEY NOT NULL,
  since_at INTEGER NOT NULL
) WITHOUT ROWID;
)sql";
// clang-format on

}  // namespace sql

namespace {

// One entry per step: brings a database from version `index` to `index + 1`.
const char* const kMigrations[] = {sql::kSchemaV1, sql::kSchemaV2, sql::kSchemaV3, sql::kSchemaV4};
static_assert(sizeof(kMigrations) / sizeof(kMigrations[0]) == kSchemaVersion,
              "a migration for each schema version");

// Software of schema version N can still write what this version makes.
constexpr int kMinWriter = 1;

Status meta_int(sqlite3* db, const char* key, int& value) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaGet);
  if (!status.ok()) return status;
  statement.bind_text(1, key);
  if (statement.step(status, "holdfast_meta")) value = static_cast<int>(statement.column_int(0));
  return status;
}

Status set_meta_int(sqlite3* db, const char* key, int value) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaSet);
  if (!status.ok()) return status;
  return statement.bind_text(1, key).bind(2, static_cast<std::int64_t>(value)).run(key);
}

Status set_identity(sqlite3* db, const std::string& device) {
  Statement statement;
  Status status = statement.prepare(db, sql::kMetaSet);
  if (!status.ok()) return status;
  for (const char* key : {"stream_id", "store_id"}) {
    statement.reset();
    status = statement.bind_text(1, key).bind_id(2, EventId::make_random()).run(key);
    if (!status.ok()) return status;
  }
  statement.reset();
  return statement.bind_text(1, "device").bind_text(2, device).run("device");
}

Status newer_schema(const std::string& path, int version) {
  return Status::error(Code::newer_schema,
                       "%s: schema version %d is newer than this software's %d; use the newer "
                       "software (nothing was written)",
                       path.c_str(), version, kSchemaVersion);
}

}  // namespace

Status read_schema(sqlite3* db, SchemaFacts& facts) {
  facts = SchemaFacts();
  Statement statement;
  Status status = statement.prepare(db, sql::kHasMeta);
  if (!status.ok()) return status;
  const bool has = statement.step(status, "schema") && statement.column_int(0) > 0;
  statement.finalize();
  if (!status.ok() || !has) return status;
  status = meta_int(db, "schema_version", facts.version);
  if (status.ok()) status = meta_int(db, "min_writer", facts.min_writer);
  return status;
}

Status check_schema(sqlite3* db, const std::string& path) {
  SchemaFacts facts;
  Status status = read_schema(db, facts);
  if (!status.ok()) return status;
  if (facts.version == 0)
    return Status::error(Code::no_schema, "%s: has no Holdfast tables; run `holdfast init %s`",
                         path.c_str(), path.c_str());
  if (facts.version < kSchemaVersion)
    return Status::error(Code::no_schema,
                         "%s: schema version %d is older than this software's %d; run `holdfast "
                         "init %s`, which keeps everything",
                         path.c_str(), facts.version, kSchemaVersion, path.c_str());
  if (facts.version > kSchemaVersion && facts.min_writer > kSchemaVersion)
    return newer_schema(path, facts.version);
  return Status();
}

Status migrate_schema(Db& db, const std::string& device, SchemaFacts& before,
                      const std::function<Status()>& first_rows) {
  Status status = read_schema(db.handle(), before);
  if (!status.ok()) return status;
  if (before.version > kSchemaVersion) return newer_schema(db.path(), before.version);
  if (before.version == kSchemaVersion) return Status();
  Transaction transaction(db.handle());
  status = transaction.begin();
  if (!status.ok()) return status;
  // Again under the lock: another process may have migrated meanwhile.
  status = read_schema(db.handle(), before);
  if (!status.ok()) return status;
  if (before.version > kSchemaVersion) return newer_schema(db.path(), before.version);
  for (int version = before.version; version < kSchemaVersion; ++version) {
    status = db.exec(kMigrations[version], "migrate");
    if (!status.ok()) return status;
    if (version == 0) status = set_identity(db.handle(), device);
    if (!status.ok()) return status;
  }
  status = set_meta_int(db.handle(), "schema_version", kSchemaVersion);
  if (status.ok()) status = set_meta_int(db.handle(), "min_writer", kMinWriter);
  if (status.ok() && before.version == 0 && first_rows) status = first_rows();
  return status.ok() ? transaction.commit() : status;
}

// --- capture triggers
// ------------------------------------------------------------------------------

namespace {

std::string quote_name(const std::string& name) {
  std::string out = "\"";
  for (char c : name) {
    out += c;
    if (c == '"') out += c;
  }
  return out + "\"";
}

std::string quote_text(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    out += c;
    if (c == '\'') out += c;
  }
  return out + "'";
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// NEW.column → OLD.column, outside of quotes: on delete there is only the old row.
std::string new_to_old(const std::string& expression) {
  std::string out;
  char quote = 0;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"' || c == '`') {
      quote = c;
    } else if ((c == 'N' || c == 'n') && (i == 0 || !is_word(expression[i - 1]))) {
      std::string word = expression.substr(i, 3);
      for (char& letter : word) letter = static_cast<char>(std::toupper(letter));
      std::size_t dot = i + 3;
      while (dot < expression.size() && expression[dot] == ' ') ++dot;
      if (word == "NEW" && dot < expression.size() && expression[dot] == '.') {
        out += "OLD";
        i += 2;
        continue;
      }
    }
    out += c;
  }
  return out;
}

std::string with_op(const std::string& text, const char* op) {
  std::string out = text;
  for (std::size_t at = out.find("{op}"); at != std::string::npos; at = out.find("{op}", at))
    out.replace(at, 4, op);
  return out;
}

}  // namespace

std::string capture_trigger_name(const std::string& table, const char* op) {
  return "holdfast_capture_" + table + "_" + op;
}

std::string capture_trigger_sql(const CaptureSpec& spec, const char* op) {
  const bool deleting = std::string(op) == "delete";
  const auto expression = [&](const std::string& text) {
    return "(" + (deleting ? new_to_old(text) : text) + ")";
  };
  return "CREATE TRIGGER " + quote_name(capture_trigger_name(spec.table, op)) + " AFTER " + op +
         " ON " + quote_name(spec.table) +
         " BEGIN INSERT INTO outbox_event(event_type,aggregate_type,aggregate_id,"
         "aggregate_version,lane,content_type,payload) VALUES(" +
         quote_text(with_op(spec.event_type, op)) + "," + quote_text(spec.aggregate_type) +
         ",CAST(" + expression(spec.aggregate_id) + " AS TEXT)," +
         (spec.aggregate_version.empty() ? "NULL" : expression(spec.aggregate_version)) + "," +
         std::to_string(spec.lane) + ",CASE WHEN json_valid(" + expression(spec.payload) +
         ") THEN 'application/json' END,CAST(" + expression(spec.payload) + " AS TEXT)); END";
}

std::string capture_probe_sql(const std::string& table, const std::string& column, const char* op) {
  const std::string what = op;
  if (what == "insert")
    return "INSERT INTO " + quote_name(table) + "(" + quote_name(column) + ") SELECT NULL WHERE 0";
  if (what == "update")
    return "UPDATE " + quote_name(table) + " SET " + quote_name(column) + "=NULL WHERE 0";
  return "DELETE FROM " + quote_name(table) + " WHERE 0";
}

std::string drop_trigger_sql(const std::string& name) {
  return "DROP TRIGGER IF EXISTS " + quote_name(name);
}

}  // namespace holdfast
