// An application with better-sqlite3 and the schema of conventional.sql.
//   better_sqlite3.js DATABASE SCHEMA put SECONDS COUNT    business row and event in one transaction
//   better_sqlite3.js DATABASE SCHEMA drain                claims 256, marks them sent, until none waits
//   better_sqlite3.js DATABASE SCHEMA count
// Prints one line of JSON.
'use strict';
const fs = require('fs');
const {randomUUID} = require('crypto');
const Database = require('better-sqlite3');

const BATCH = 256;
const [path, schema, what, seconds, count] = process.argv.slice(2);
const db = new Database(path);
db.pragma('journal_mode = WAL');
db.pragma('synchronous = FULL');
db.exec(fs.readFileSync(schema, 'utf8'));
const payload = process.env.BENCH_PAYLOAD;

function now() {
  return Number(process.hrtime.bigint()) / 1e9;
}

function proc(file, field) {
  const line = fs.readFileSync('/proc/self/' + file, 'utf8').split('\n').find((l) => l.startsWith(field));
  return Number(line.match(/\d+/)[0]);
}

function put() {
  const row = db.prepare('INSERT INTO reading(value) VALUES(1)');
  const event = db.prepare(
    'INSERT INTO outbox(uuid, event_type, aggregate_type, aggregate_id, payload, next_retry_at, created_at) ' +
    "VALUES(?, 'sensor.reading.v1', 'sensor', 'boiler-1', ?, ?, ?)");
  const transaction = db.transaction(() => {
    const ms = Date.now();
    row.run();
    event.run(randomUUID(), payload, ms, ms);
  });
  const start = now();
  let events = 0;
  while ((seconds <= 0 || now() - start < seconds) && (count <= 0 || events < count)) {
    transaction.immediate();
    ++events;
  }
  return {events, seconds: now() - start};
}

function drain() {
  const claim = db.prepare(
    "UPDATE outbox SET status = 'processing' WHERE id IN (SELECT id FROM outbox WHERE status = 'pending' " +
    'AND next_retry_at <= ? ORDER BY next_retry_at, created_at LIMIT ?) RETURNING id, payload');
  const sent = db.prepare("UPDATE outbox SET status = 'sent' WHERE id = ?");
  const acknowledge = db.transaction((rows) => rows.forEach((each) => sent.run(each.id)));
  const start = now();
  let events = 0;
  for (;;) {
    const rows = claim.all(Date.now(), BATCH);
    if (rows.length === 0) return {events, seconds: now() - start};
    acknowledge.immediate(rows);
    events += rows.length;
  }
}

const written = proc('io', 'write_bytes:');
const result = what === 'put' ? put() : what === 'drain' ? drain() :
  {events: db.prepare('SELECT count(*) AS n FROM outbox').get().n, seconds: 0};
result.write_bytes = proc('io', 'write_bytes:') - written;
result.resident_mb = proc('status', 'VmRSS:') / 1024;
console.log(JSON.stringify(result));
process.kill(process.pid, 'SIGKILL'); // no checkpoint at close: a power cut brings none either
