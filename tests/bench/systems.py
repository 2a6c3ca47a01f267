"""All that are measured, in the order of the table."""

from better_sqlite3 import BetterSqlite3
from holdfast import Holdfast
from mosquitto_bridge import MosquittoDefault, MosquittoEveryChange
from nats_stream import NatsStream
from redis_stream import RedisAlways, RedisEverySecond

SYSTEMS = (Holdfast, BetterSqlite3, RedisAlways, RedisEverySecond, NatsStream, MosquittoDefault, MosquittoEveryChange)


def by_name(name):
    return next(each for each in SYSTEMS if each.name == name)()
