-- The outbox as it is usually written: a row per event whose status is updated, an id, a unique
-- uuid, an index to find what is due and one for the order within an aggregate.
CREATE TABLE IF NOT EXISTS reading(id INTEGER PRIMARY KEY, value INTEGER);
CREATE TABLE IF NOT EXISTS outbox(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid TEXT NOT NULL UNIQUE,
  event_type TEXT NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id TEXT NOT NULL,
  payload TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending',
  attempts INTEGER NOT NULL DEFAULT 0,
  next_retry_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS outbox_due ON outbox(status, next_retry_at, created_at);
CREATE INDEX IF NOT EXISTS outbox_aggregate ON outbox(aggregate_type, aggregate_id, id);
