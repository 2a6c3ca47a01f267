// Every SQL string of Holdfast. The tables are explained in lib/docs/SCHEMA.md.
#pragma once

#include <functional>

#include "db.hpp"
#include "holdfast/status.hpp"
#include "holdfast/store.hpp"

namespace holdfast {

// What a database says of itself.
struct SchemaFacts {
  int version = 0;     // 0: no Holdfast tables
  int min_writer = 0;  // oldest software that may still write
};
Status read_schema(sqlite3* db, SchemaFacts& facts);
// ok, no_schema or newer_schema. `writing`: newer tables are fine if min_writer allows us.
Status check_schema(sqlite3* db, const std::string& path);
// Creates or migrates inside one transaction. No write if there is nothing to do. `first_rows`, if
// set, adds to that transaction when the tables are new: a power cut leaves all of it or nothing.
Status migrate_schema(Db& db, const std::string& device, SchemaFacts& before,
                      const std::function<Status()>& first_rows = nullptr);

// The statements that create capture triggers; see Store::capture.
std::string capture_trigger_name(const std::string& table, const char* op);
std::string capture_trigger_sql(const CaptureSpec& spec, const char* op);
// Touches no row, but makes SQLite compile the trigger: a column that does not exist is found now,
// not at the application's next write.
std::string capture_probe_sql(const std::string& table, const std::string& column, const char* op);
std::string drop_trigger_sql(const std::string& name);

namespace sql {

extern const char* const kSchemaV1;
extern const char* const kSchemaV2;
extern const char* const kSchemaV3;
extern const char* const kSchemaV4;

// --- meta, counters, audit ---------------------------------------------------------------------
constexpr const char* kHasMeta =
    "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name='holdfast_meta'";
constexpr const char* kMetaGet = "SELECT value FROM holdfast_meta WHERE key=?1";
constexpr const char* kMetaSet =
    "INSERT INTO holdfast_meta(key,value) VALUES(?1,?2)"
    " ON CONFLICT(key) DO UPDATE SET value=excluded.value";
constexpr const char* kRelayUrlGet = "SELECT value FROM holdfast_meta WHERE key='relay_url/'||?1";
constexpr const char* kRelayUrlSet =
    "INSERT INTO holdfast_meta(key,value) VALUES('relay_url/'||?1,?2)"
    " ON CONFLICT(key) DO UPDATE SET value=excluded.value";
constexpr const char* kRelayUrlDelete = "DELETE FROM holdfast_meta WHERE key='relay_url/'||?1";
constexpr const char* kMetaDelete = "DELETE FROM holdfast_meta WHERE key=?1";
constexpr const char* kEventCountReset =
    "UPDATE holdfast_meta SET value=(SELECT count(*) FROM outbox_event) WHERE key='events'";
constexpr const char* kEventCount = "SELECT value FROM holdfast_meta WHERE key='events'";
constexpr const char* kMakeRoom = "UPDATE holdfast_meta SET value=value+1 WHERE key='make_room'";
constexpr const char* kBytesUsed =
    "SELECT (page_count-freelist_count)*page_size,page_size FROM pragma_page_count,"
    "pragma_freelist_count,pragma_page_size";
constexpr const char* kCounterAdd =
    "INSERT INTO holdfast_counter(name,value) VALUES(?1,?2)"
    " ON CONFLICT(name) DO UPDATE SET value=value+excluded.value";
constexpr const char* kCounterAll = "SELECT name,value FROM holdfast_counter";
constexpr const char* kAuditAdd = "INSERT INTO holdfast_audit(at,action,detail) VALUES(?1,?2,?3)";
constexpr const char* kAuditTrim =
    "DELETE FROM holdfast_audit WHERE id<=(SELECT max(id) FROM holdfast_audit)-?1";
constexpr const char* kAuditList =
    "SELECT at,action,detail FROM holdfast_audit ORDER BY id DESC LIMIT ?1";

// --- time ----------------------------------------------------------------------------------------
#define HOLDFAST_TIME_COLUMNS "powered_ms,boot_id,boot_ms,wall_ms,last_seq"
constexpr const char* kTimeLatest =
    "SELECT " HOLDFAST_TIME_COLUMNS " FROM holdfast_time ORDER BY id DESC LIMIT 1";
constexpr const char* kTimeKnownWall =
    "SELECT wall_ms FROM holdfast_time WHERE wall_ms>=?1 ORDER BY id DESC LIMIT 1";
constexpr const char* kTimeAdd =
    "INSERT INTO holdfast_time(powered_ms,boot_id,boot_ms,wall_ms,last_seq)"
    " VALUES(?1,?2,?3,?4,(SELECT ifnull(max(seq),0) FROM outbox_event))";
// The newest event known to be at least that old: every event up to a sample's last_seq was there
// when the sample was taken.
constexpr const char* kTimeCutoff =
    "SELECT ifnull(max(last_seq),0) FROM holdfast_time WHERE powered_ms<=?1";
constexpr const char* kTimeBefore =
    "SELECT " HOLDFAST_TIME_COLUMNS
    " FROM holdfast_time WHERE last_seq<?1 ORDER BY last_seq DESC,id DESC LIMIT 1";
constexpr const char* kTimeAfter =
    "SELECT " HOLDFAST_TIME_COLUMNS
    " FROM holdfast_time WHERE last_seq>=?1 ORDER BY last_seq,id LIMIT 1";
// Samples of boot ?2 with the clock set.
constexpr const char* kTimeSetAfter =
    "SELECT " HOLDFAST_TIME_COLUMNS
    " FROM holdfast_time WHERE last_seq>=?1 AND boot_id=?2 AND wall_ms>=?3 ORDER BY id LIMIT 1";
constexpr const char* kTimeSetBefore =
    "SELECT " HOLDFAST_TIME_COLUMNS
    " FROM holdfast_time WHERE last_seq<?1 AND boot_id=?2 AND wall_ms>=?3 ORDER BY id DESC LIMIT 1";
constexpr const char* kTimeNewest = "SELECT ifnull(max(last_seq),0) FROM holdfast_time";
// Samples that only dated events which are gone. The newest of them still bounds the next event,
// and the newest with the clock set may be the one that tells its time.
constexpr const char* kTimeTrim =
    "DELETE FROM holdfast_time WHERE id<(SELECT max(id) FROM holdfast_time WHERE last_seq<"
    "(SELECT ifnull(min(seq),0) FROM outbox_event)) AND id<>ifnull((SELECT max(id) FROM"
    " holdfast_time WHERE wall_ms>=?1 AND last_seq<(SELECT min(seq) FROM outbox_event)),0)";

// --- outbox --------------------------------------------------------------------------------------
constexpr const char* kEventInsert =
    "INSERT INTO outbox_event(event_id,event_type,aggregate_type,aggregate_id,aggregate_version,"
    "created_at,content_type,trace,headers,lane,payload,ttl_ms,emitted_ms)"
    " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)";
constexpr const char* kEventForward =
    "INSERT INTO outbox_event(event_id,event_type,aggregate_type,aggregate_id,aggregate_version,"
    "created_at,content_type,trace,headers,lane,payload,source,source_stream,source_seq)"
    " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)";
#define HOLDFAST_EVENT_COLUMNS                                                         \
  "e.seq,e.event_id,e.event_type,e.aggregate_type,e.aggregate_id,e.aggregate_version," \
  "e.created_at,e.content_type,e.trace,e.headers,e.lane,e.source,e.source_stream,"     \
  "e.source_seq,e.payload,e.ttl_ms,e.emitted_ms"
constexpr const char* kEventRead =
    "SELECT " HOLDFAST_EVENT_COLUMNS " FROM outbox_event e WHERE e.seq=?1";
constexpr const char* kEventIdAt = "SELECT event_id,lane FROM outbox_event WHERE seq=?1";
constexpr const char* kNewestSeq = "SELECT ifnull(max(seq),0) FROM outbox_event";
constexpr const char* kOldestSeq = "SELECT ifnull(min(seq),0) FROM outbox_event";
constexpr const char* kFindId =
    "SELECT seq FROM (SELECT seq,event_id FROM outbox_event ORDER BY seq DESC LIMIT ?2)"
    " WHERE lower(event_id)=?1 LIMIT 1";
// `ifnull(lane,0)<1` takes a damaged lane value along, so that such a row goes dead, not unseen.
constexpr const char* kReadNormal =
    "SELECT " HOLDFAST_EVENT_COLUMNS
    " FROM outbox_event e WHERE e.seq>?1 AND ifnull(e.lane,0)<>1 ORDER BY e.seq LIMIT ?2";
constexpr const char* kReadUrgent =
    "SELECT " HOLDFAST_EVENT_COLUMNS
    " FROM outbox_event e WHERE e.lane>0 AND e.lane=1 AND e.seq>?1 ORDER BY e.seq LIMIT ?2";
constexpr const char* kFirstNormalAfter =
    "SELECT seq FROM outbox_event WHERE seq>?1 AND ifnull(lane,0)<>1 ORDER BY seq LIMIT 1";
constexpr const char* kFirstNormalBetween =
    "SELECT seq FROM outbox_event WHERE seq>?1 AND seq<=?2 AND ifnull(lane,0)<>1 ORDER BY seq"
    " LIMIT 1";
constexpr const char* kFirstUrgentAfter =
    "SELECT seq FROM outbox_event WHERE lane>0 AND lane=1 AND seq>?1 ORDER BY seq LIMIT 1";
constexpr const char* kUrgentAfter =
    "SELECT count(*) FROM outbox_event WHERE lane>0 AND lane=1 AND seq>?1";
constexpr const char* kEventsUpTo = "DELETE FROM outbox_event WHERE seq<=?1";

// --- destinations
// ----------------------------------------------------------------------------------
constexpr const char* kDestinationAdd =
    "INSERT INTO outbox_destination(name) VALUES(?1) ON CONFLICT(name) DO NOTHING";
constexpr const char* kDestinationRemove = "DELETE FROM outbox_destination WHERE id=?1";
constexpr const char* kDestinationCount = "SELECT count(*) FROM outbox_destination";
#define HOLDFAST_DESTINATION_COLUMNS                                                         \
  "id,name,acked_seq,acked_id,claimed_seq,base_seq,urgent_acked_seq,urgent_acked_id,"        \
  "urgent_claimed_seq,urgent_base_seq,peer_store,peer_stream,lease_owner,lease_boot_id,"     \
  "lease_until_ms,lease_epoch,times_boot_id,control,link_failures,last_error,last_error_at," \
  "sent,duplicates,rejected,retries,rewinds,capped"
constexpr const char* kDestinationByName =
    "SELECT " HOLDFAST_DESTINATION_COLUMNS " FROM outbox_destination WHERE name=?1";
constexpr const char* kDestinationAll =
    "SELECT " HOLDFAST_DESTINATION_COLUMNS " FROM outbox_destination ORDER BY id";
constexpr const char* kLeaseTake =
    "UPDATE outbox_destination SET lease_owner=?2,lease_boot_id=?3,lease_until_ms=?4,"
    "lease_epoch=?5,times_boot_id=?3 WHERE id=?1";
constexpr const char* kLeaseRelease =
    "UPDATE outbox_destination SET lease_owner='',lease_until_ms=0,claimed_seq=acked_seq,"
    "urgent_claimed_seq=urgent_acked_seq WHERE id=?1 AND lease_owner=?2 AND lease_epoch=?3";
// The fence: nothing is written unless the lease is still ours.
constexpr const char* kCursorFlush =
    "UPDATE outbox_destination SET acked_seq=?4,acked_id=?5,claimed_seq=?6,urgent_acked_seq=?7,"
    "urgent_acked_id=?8,urgent_claimed_seq=?9,lease_until_ms=?10,sent=sent+?11,"
    "duplicates=duplicates+?12,rejected=rejected+?13,retries=retries+?14"
    " WHERE id=?1 AND lease_owner=?2 AND lease_epoch=?3";
constexpr const char* kPeerSet =
    "UPDATE outbox_destination SET peer_store=?4,peer_stream=?5,base_seq=?6,urgent_base_seq=?7,"
    "rewinds=rewinds+?8 WHERE id=?1 AND lease_owner=?2 AND lease_epoch=?3";
constexpr const char* kLinkSet =
    "UPDATE outbox_destination SET link_failures=?2,last_error=?3,last_error_at=?4 WHERE id=?1";
constexpr const char* kControlBump = "UPDATE outbox_destination SET control=control+1 WHERE id=?1";
constexpr const char* kControlGet = "SELECT control,capped FROM outbox_destination WHERE id=?1";
constexpr const char* kClaimsDrop =
    "UPDATE outbox_destination SET lease_owner='',lease_until_ms=0,claimed_seq=acked_seq,"
    "urgent_claimed_seq=urgent_acked_seq WHERE id=?1";

// --- exceptions and gaps
// -----------------------------------------------------------------------------
constexpr const char* kExceptionAll =
    "SELECT x.seq,x.lane,x.status,x.attempts,x.next_attempt_ms,x.reported,x.last_error,"
    "e.aggregate_type,e.aggregate_id,e.source_stream,e.seq IS NULL FROM outbox_exception x"
    " LEFT JOIN outbox_event e ON e.seq=x.seq WHERE x.destination_id=?1 ORDER BY x.seq";
constexpr const char* kExceptionGet =
    "SELECT status,attempts,next_attempt_ms,last_error,lane FROM outbox_exception"
    " WHERE destination_id=?1 AND seq=?2";
// Not if a person discarded the event meanwhile.
constexpr const char* kExceptionPut =
    "INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts,next_attempt_ms,reported,"
    "last_error) SELECT ?1,?2,?3,?4,?5,?6,?7,?8 WHERE NOT EXISTS(SELECT 1 FROM outbox_gap WHERE"
    " destination_id=?1 AND lane=?3 AND first_seq<=?2 AND last_seq>=?2)"
    " ON CONFLICT(destination_id,seq) DO UPDATE SET"
    " status=excluded.status,attempts=excluded.attempts,next_attempt_ms=excluded.next_attempt_ms,"
    "reported=excluded.reported,last_error=excluded.last_error";
constexpr const char* kExceptionAdd =
    "INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts,next_attempt_ms,reported,"
    "last_error) SELECT ?1,?2,?3,?4,?5,?6,?7,?8 WHERE NOT EXISTS(SELECT 1 FROM outbox_gap WHERE"
    " destination_id=?1 AND lane=?3 AND first_seq<=?2 AND last_seq>=?2)"
    " ON CONFLICT(destination_id,seq) DO NOTHING";
constexpr const char* kExceptionDelete =
    "DELETE FROM outbox_exception WHERE destination_id=?1 AND seq=?2";
constexpr const char* kExceptionDeleteAll = "DELETE FROM outbox_exception WHERE destination_id=?1";
constexpr const char* kExceptionTimesReset =
    "UPDATE outbox_exception SET next_attempt_ms=0 WHERE destination_id=?1";
constexpr const char* kExceptionRetry =
    "UPDATE outbox_exception SET status='RETRY',attempts=0,next_attempt_ms=0,reported=0"
    " WHERE destination_id=?1 AND seq=?2";
constexpr const char* kExceptionRetryAllDead =
    "UPDATE outbox_exception SET status='RETRY',attempts=0,next_attempt_ms=0,reported=0"
    " WHERE destination_id=?1 AND status='DEAD'";
constexpr const char* kExceptionCounts =
    "SELECT status,lane,count(*),sum(seq>?2) FROM outbox_exception WHERE destination_id=?1"
    " AND lane=?3 GROUP BY status";
constexpr const char* kExceptionLowest =
    "SELECT ifnull(min(seq),0) FROM outbox_exception WHERE destination_id=?1";
constexpr const char* kGapAdd =
    "INSERT INTO outbox_gap(destination_id,lane,first_seq,last_seq,count,reason,detail,created_at)"
    " VALUES(?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT(destination_id,lane,first_seq) DO UPDATE SET"
    " last_seq=max(last_seq,excluded.last_seq),count=max(count,excluded.count),reported=0";
constexpr const char* kGapAll =
    "SELECT lane,first_seq,last_seq,count,reason,detail,reported FROM outbox_gap"
    " WHERE destination_id=?1 ORDER BY lane,first_seq";
constexpr const char* kGapReported =
    "UPDATE outbox_gap SET reported=1 WHERE destination_id=?1 AND lane=?2 AND first_seq=?3"
    " AND last_seq=?4";
constexpr const char* kGapUnreport =
    "UPDATE outbox_gap SET reported=0 WHERE destination_id=?1 AND lane=?2 AND last_seq>?3";
constexpr const char* kGapAt =
    "SELECT reason,detail FROM outbox_gap WHERE destination_id=?1 AND lane=?2 AND first_seq<=?3"
    " AND last_seq>=?3 ORDER BY first_seq DESC LIMIT 1";
constexpr const char* kGapCountAfter =
    "SELECT ifnull(sum(count),0) FROM outbox_gap WHERE destination_id=?1 AND lane=?2"
    " AND first_seq>?3 AND last_seq>=(SELECT min(seq) FROM outbox_event)";
constexpr const char* kGapTotal =
    "SELECT ifnull(sum(count),0) FROM outbox_gap WHERE destination_id=?1";
constexpr const char* kGapUnreported = "SELECT count(*) FROM outbox_gap WHERE reported=0";
constexpr const char* kGapDeleteAll = "DELETE FROM outbox_gap WHERE destination_id=?1";
constexpr const char* kGapTrim =
    "DELETE FROM outbox_gap WHERE reported=1 AND last_seq<"
    "(SELECT ifnull(min(seq),0) FROM outbox_event)";

// --- lists
// ------------------------------------------------------------------------------------------- One
// page of events at one destination; filters are NULL when not set.
constexpr const char* kListPage =
    "SELECT " HOLDFAST_EVENT_COLUMNS
    ",x.status,x.attempts,x.next_attempt_ms,x.last_error"
    " FROM outbox_event e LEFT JOIN outbox_exception x"
    " ON x.destination_id=?1 AND x.seq=e.seq WHERE e.seq>?2"
    " AND (?3 IS NULL OR e.event_type=?3) AND (?4 IS NULL OR e.aggregate_type=?4)"
    " AND (?5 IS NULL OR e.aggregate_id=?5) ORDER BY e.seq LIMIT ?6";
// The same from the exceptions alone: their rows may lie far below a long tail of sent events.
constexpr const char* kListExceptions =
    "SELECT " HOLDFAST_EVENT_COLUMNS
    ",x.status,x.attempts,x.next_attempt_ms,x.last_error"
    " FROM outbox_exception x JOIN outbox_event e ON e.seq=x.seq"
    " WHERE x.destination_id=?1 AND x.seq>?2"
    " AND (?3 IS NULL OR e.event_type=?3) AND (?4 IS NULL OR e.aggregate_type=?4)"
    " AND (?5 IS NULL OR e.aggregate_id=?5) ORDER BY x.seq LIMIT ?6";

// --- inbox
// ---------------------------------------------------------------------------------------------
constexpr const char* kInboxInsert =
    "INSERT INTO inbox_event(event_id,consumer,status,attempts,received_ms,received_at)"
    " VALUES(?1,?2,?3,1,?4,?5) ON CONFLICT(event_id,consumer) DO NOTHING";
constexpr const char* kInboxStatus =
    "SELECT status FROM inbox_event WHERE event_id=?1 AND consumer=?2";
constexpr const char* kInboxFinish =
    "UPDATE inbox_event SET status=?3,attempts=attempts+1,last_error=NULL,received_ms=?4,"
    "received_at=?5 WHERE event_id=?1 AND consumer=?2";
constexpr const char* kInboxFail =
    "INSERT INTO inbox_event(event_id,consumer,status,attempts,received_ms,received_at,last_error)"
    " VALUES(?1,?2,'FAILED',1,?3,?4,?5) ON CONFLICT(event_id,consumer) DO UPDATE SET"
    " status='FAILED',attempts=attempts+1,received_ms=excluded.received_ms,"
    "received_at=excluded.received_at,last_error=excluded.last_error";
constexpr const char* kInboxPage =
    "SELECT event_id,consumer,status,attempts,received_at,last_error FROM inbox_event"
    " WHERE (event_id,consumer)>(?1,?2) AND (?3 IS NULL OR status=?3)"
    " AND (?4 IS NULL OR consumer=?4) ORDER BY event_id,consumer LIMIT ?5";
constexpr const char* kInboxFind =
    "SELECT event_id,consumer,status,attempts,received_at,last_error FROM inbox_event"
    " WHERE event_id=?1 ORDER BY consumer";
constexpr const char* kInboxPurgeWalk =
    "SELECT event_id,consumer,received_ms FROM inbox_event WHERE (event_id,consumer)>(?1,?2)"
    " ORDER BY event_id,consumer LIMIT ?3";
constexpr const char* kInboxDelete = "DELETE FROM inbox_event WHERE event_id=?1 AND consumer=?2";
constexpr const char* kVersionGet =
    "SELECT version FROM inbox_aggregate WHERE consumer=?1 AND stream=?2 AND lane=?3 AND"
    " aggregate_type=?4 AND aggregate_id=?5";
constexpr const char* kVersionSet =
    "INSERT INTO inbox_aggregate(consumer,stream,lane,aggregate_type,aggregate_id,version)"
    " VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT(consumer,stream,lane,aggregate_type,aggregate_id)"
    " DO UPDATE SET version=max(version,excluded.version)";
constexpr const char* kStreamGet =
    "SELECT mark_seq,mark_id FROM inbox_stream WHERE stream=?1 AND lane=?2 AND consumer=?3";
constexpr const char* kStreamPut =
    "INSERT INTO inbox_stream(stream,lane,consumer,device,mark_seq,mark_id,seen_at,events)"
    " VALUES(?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT(stream,lane,consumer) DO UPDATE SET"
    " device=excluded.device,mark_seq=excluded.mark_seq,mark_id=excluded.mark_id,"
    "seen_at=excluded.seen_at,events=events+excluded.events";
constexpr const char* kStreamKnown = "SELECT count(*) FROM inbox_stream WHERE stream=?1";
constexpr const char* kOwnerGet = "SELECT name FROM inbox_owner WHERE stream=?1";
constexpr const char* kOwnerPut =
    "INSERT INTO inbox_owner(stream,name,since_at) VALUES(?1,?2,?3) ON CONFLICT(stream)"
    " DO UPDATE SET name=excluded.name,since_at=excluded.since_at";
constexpr const char* kDeniedGet = "SELECT count(*) FROM inbox_denied WHERE name=?1";
constexpr const char* kDeniedPut =
    "INSERT INTO inbox_denied(name,since_at) VALUES(?1,?2) ON CONFLICT(name) DO NOTHING";
constexpr const char* kDeniedDelete = "DELETE FROM inbox_denied WHERE name=?1";
// Each bound stream, then each denied name without one.
constexpr const char* kCertificateStreams =
    "SELECT o.name,o.name IN (SELECT name FROM inbox_denied),o.stream,o.since_at,"
    "(SELECT device FROM inbox_stream s WHERE s.stream=o.stream LIMIT 1),"
    "(SELECT ifnull(max(seen_at),0) FROM inbox_stream s WHERE s.stream=o.stream),"
    "(SELECT ifnull(sum(events),0) FROM inbox_stream s WHERE s.stream=o.stream)"
    " FROM inbox_owner o UNION ALL SELECT name,1,NULL,0,'',0,0 FROM inbox_denied"
    " WHERE name NOT IN (SELECT name FROM inbox_owner) ORDER BY 1,4,3";
constexpr const char* kStreamsOfDevice =
    "SELECT count(DISTINCT stream) FROM inbox_stream WHERE device=?1 AND stream<>?2"
    " AND consumer=?3";
constexpr const char* kStreamAll =
    "SELECT s.stream,s.lane,s.consumer,s.device,s.mark_seq,s.mark_id,s.seen_at,"
    "(SELECT count(*) FROM inbox_gap g WHERE g.stream=s.stream AND g.lane=s.lane AND"
    " g.consumer=s.consumer AND g.state<>'GONE') FROM inbox_stream s"
    " ORDER BY s.device,s.stream,s.lane,s.consumer";
constexpr const char* kStreamCount = "SELECT count(DISTINCT stream) FROM inbox_stream";
// A name has one stream until its database is replaced, copied or restored.
constexpr const char* kReplacedStreams =
    "SELECT count(DISTINCT stream)-count(DISTINCT device) FROM inbox_stream WHERE device<>''";
constexpr const char* kInboxGapOpen =
    "SELECT first_seq,state,aggregate_type,aggregate_id,origin FROM inbox_gap"
    " WHERE stream=?1 AND lane=?2 AND consumer=?3 AND state<>'GONE' ORDER BY first_seq";
constexpr const char* kInboxGapPut =
    "INSERT INTO inbox_gap(stream,lane,consumer,first_seq,last_seq,count,state,aggregate_type,"
    "aggregate_id,origin,reason,at) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)"
    " ON CONFLICT(stream,lane,consumer,first_seq) DO UPDATE SET last_seq=excluded.last_seq,"
    "count=excluded.count,state=excluded.state,aggregate_type=excluded.aggregate_type,"
    "aggregate_id=excluded.aggregate_id,origin=excluded.origin,reason=excluded.reason,"
    "at=excluded.at";
constexpr const char* kInboxGapDelete =
    "DELETE FROM inbox_gap WHERE stream=?1 AND lane=?2 AND consumer=?3 AND first_seq=?4"
    " AND state<>'GONE'";
constexpr const char* kInboxGapGoneAt =
    "SELECT last_seq,count FROM inbox_gap WHERE stream=?1 AND lane=?2 AND consumer=?3 AND "
    "first_seq=?4"
    " AND state='GONE'";
constexpr const char* kInboxGapGoneAll =
    "SELECT first_seq,last_seq FROM inbox_gap WHERE stream=?1 AND lane=?2 AND consumer=?3"
    " AND state='GONE'";
constexpr const char* kInboxGapGoneTrim =
    "DELETE FROM inbox_gap WHERE stream=?1 AND lane=?2 AND consumer=?3 AND state='GONE'"
    " AND first_seq<=(SELECT first_seq FROM inbox_gap WHERE stream=?1 AND lane=?2 AND consumer=?3"
    " AND state='GONE' ORDER BY first_seq DESC LIMIT 1 OFFSET ?4)";
constexpr const char* kInboxGapAll =
    "SELECT stream,lane,consumer,first_seq,last_seq,count,state,reason FROM inbox_gap"
    " ORDER BY stream,lane,consumer,first_seq";
constexpr const char* kInboxGapCounts =
    "SELECT ifnull(sum(state<>'GONE'),0),ifnull(sum(CASE WHEN state='GONE' THEN count END),0)"
    " FROM inbox_gap";

// --- salvage
// ------------------------------------------------------------------------------------------------
// Rows go in as they were stored; what a CHECK refuses is damaged. The order of the columns is that
// of the tables, and so of the records.
constexpr const char* kSalvageEvent =
    "INSERT INTO "
    "outbox_event(seq,event_id,event_type,aggregate_type,aggregate_id,aggregate_version,"
    "created_at,content_type,trace,headers,lane,source,source_stream,source_seq,payload,ttl_ms,"
    "emitted_ms) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17)"
    " ON CONFLICT DO NOTHING";
constexpr const char* kSalvageDestination =
    "INSERT INTO outbox_destination(id,name,acked_seq,acked_id,claimed_seq,base_seq,"
    "urgent_acked_seq,urgent_acked_id,urgent_claimed_seq,urgent_base_seq,peer_store,peer_stream,"
    "lease_owner,lease_boot_id,lease_until_ms,lease_epoch,times_boot_id,control,link_failures,"
    "last_error,last_error_at,sent,duplicates,rejected,retries,rewinds,capped)"
    " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?"
    "24,"
    "?25,?26,ifnull(?27,0)) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageException =
    "INSERT INTO outbox_exception(destination_id,seq,lane,status,attempts,next_attempt_ms,reported,"
    "last_error) VALUES(?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageGap =
    "INSERT INTO outbox_gap(destination_id,lane,first_seq,last_seq,count,reason,detail,created_at,"
    "reported) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageInboxEvent =
    "INSERT INTO inbox_event(event_id,consumer,status,attempts,received_ms,received_at,last_error)"
    " VALUES(?1,?2,?3,?4,?5,?6,?7) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageInboxStream =
    "INSERT INTO inbox_stream(stream,lane,consumer,device,mark_seq,mark_id,seen_at,events)"
    " VALUES(?1,?2,?3,?4,?5,?6,?7,ifnull(?8,0)) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageOwner =
    "INSERT INTO inbox_owner(stream,name,since_at) VALUES(?1,?2,?3) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageDenied =
    "INSERT INTO inbox_denied(name,since_at) VALUES(?1,?2) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageInboxGap =
    "INSERT INTO inbox_gap(stream,lane,consumer,first_seq,last_seq,count,state,aggregate_type,"
    "aggregate_id,origin,reason,at) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)"
    " ON CONFLICT DO NOTHING";
constexpr const char* kSalvageAggregate =
    "INSERT INTO inbox_aggregate(consumer,stream,lane,aggregate_type,aggregate_id,version)"
    " VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageTime =
    "INSERT INTO holdfast_time(id,powered_ms,boot_id,boot_ms,wall_ms,last_seq)"
    " VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageCounter =
    "INSERT INTO holdfast_counter(name,value) VALUES(?1,?2) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageAudit =
    "INSERT INTO holdfast_audit(id,at,action,detail) VALUES(?1,?2,?3,?4) ON CONFLICT DO NOTHING";
constexpr const char* kSalvageMeta =
    "INSERT INTO holdfast_meta(key,value) VALUES(?1,?2) ON CONFLICT(key) DO UPDATE SET"
    " value=excluded.value";
constexpr const char* kSalvageSettle =
    "UPDATE outbox_destination SET lease_owner='',lease_boot_id='',lease_until_ms=0,"
    "claimed_seq=acked_seq,urgent_claimed_seq=urgent_acked_seq;"
    "DELETE FROM outbox_exception WHERE destination_id NOT IN (SELECT id FROM outbox_destination);"
    "DELETE FROM outbox_gap WHERE destination_id NOT IN (SELECT id FROM outbox_destination)"
    " OR first_seq<1 OR last_seq<first_seq OR count<0 OR lane NOT IN (0,1)";
// The newest seq that left any trace.
constexpr const char* kSalvageNewestKnown =
    "SELECT max(s) FROM (SELECT ifnull(max(seq),0) AS s FROM outbox_event UNION ALL SELECT"
    " max(acked_seq,claimed_seq,urgent_acked_seq,urgent_claimed_seq) FROM outbox_destination"
    " UNION ALL SELECT max(seq) FROM outbox_exception UNION ALL SELECT max(last_seq) FROM "
    "outbox_gap"
    " UNION ALL SELECT max(last_seq) FROM holdfast_time)";
// A cursor beyond every event is damaged.
constexpr const char* kSalvageResetCursors =
    "UPDATE outbox_destination SET acked_seq=0,acked_id=NULL,claimed_seq=0,base_seq=0,"
    "urgent_acked_seq=0,urgent_acked_id=NULL,urgent_claimed_seq=0,urgent_base_seq=0"
    " WHERE max(acked_seq,urgent_acked_seq)>?1 OR min(acked_seq,urgent_acked_seq)<0";
constexpr const char* kSalvageSeqs = "SELECT seq,seq FROM outbox_event ORDER BY seq";
constexpr const char* kSalvageGapRanges =
    "SELECT first_seq,last_seq FROM outbox_gap ORDER BY first_seq";
constexpr const char* kSalvageGapRangesAt =
    "SELECT first_seq,last_seq FROM outbox_gap WHERE destination_id=?1 AND lane=?2"
    " ORDER BY first_seq";
constexpr const char* kSalvageOrphanExceptions =
    "SELECT seq,seq FROM outbox_exception WHERE destination_id=?1 AND lane=?2 AND seq NOT IN"
    " (SELECT seq FROM outbox_event) ORDER BY seq";
constexpr const char* kSalvageDropOrphanExceptions =
    "DELETE FROM outbox_exception WHERE seq NOT IN (SELECT seq FROM outbox_event)";
constexpr const char* kSalvageEmptyTime = "DELETE FROM holdfast_time";
constexpr const char* kSalvageForgetMarks = "DELETE FROM inbox_stream";
// Stands for the newest event, so that no new one gets a number that is reported lost.
constexpr const char* kSalvagePlaceholder =
    "INSERT INTO outbox_event(seq,lane,event_type,aggregate_type,aggregate_id,payload)"
    " VALUES(?1,?2,'holdfast.lost','holdfast','salvage',"
    "'the newest events were lost with a damaged file')";

// --- transactions, settings, health
// ----------------------------------------------------------------------
constexpr const char* kSavepoint = "SAVEPOINT holdfast";
constexpr const char* kSavepointRollback = "ROLLBACK TO holdfast";
constexpr const char* kSavepointRelease = "RELEASE holdfast";
// Around one frame of a gateway's group; those above are inside of it.
constexpr const char* kFrameSavepoint = "SAVEPOINT holdfast_frame";
constexpr const char* kFrameRollback = "ROLLBACK TO holdfast_frame";
constexpr const char* kFrameRelease = "RELEASE holdfast_frame";
constexpr const char* kMember = "SAVEPOINT holdfast_member";
constexpr const char* kMemberRollback = "ROLLBACK TO holdfast_member";
constexpr const char* kMemberRelease = "RELEASE holdfast_member";
constexpr const char* kSetWal = "PRAGMA journal_mode=WAL";
constexpr const char* kPageCount =
    "SELECT page_count*page_size FROM pragma_page_count,"
    "pragma_page_size";
constexpr const char* kPageSize = "PRAGMA page_size";
constexpr const char* kQuickCheck = "PRAGMA quick_check(1)";
constexpr const char* kIntegrityCheck = "PRAGMA integrity_check(1)";
constexpr const char* kGuardTriggers =
    "SELECT count(*) FROM sqlite_schema WHERE type='trigger' AND name GLOB 'outbox_event_guard_*'";
constexpr int kGuardTriggerCount = 5;
constexpr const char* kTriggerNames =
    "SELECT name FROM sqlite_schema WHERE type='trigger' AND tbl_name=?1"
    " AND name GLOB 'holdfast_capture_*'";
constexpr const char* kFirstColumn = "SELECT name FROM pragma_table_info(?1) LIMIT 1";
constexpr const char* kTableExists =
    "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name=?1";

}  // namespace sql
}  // namespace holdfast
