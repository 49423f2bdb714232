"""A key-value store as DagBox has it: buckets, one writer and several readers, with requests in MessagePack over DCP.

A write names a bucket and is answered with a new key. A read may name related entries, to any depth, and comes back with their data.

Prints:

    Ada wrote: first comment, second comment
"""

import os
import sqlite3
import tempfile
import uuid
from typing import Any

import msgspec

from polydomo import Call, Client, Permanent, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")
pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class Store:
    """SQLite allows what LMDB does: readers do not wait for the writer."""

    def __init__(self, path: str) -> None:
        self.path = path
        with self.open() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE entries (bucket TEXT, key TEXT, data BLOB, PRIMARY KEY (bucket, key))")

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def write(self, call: Call) -> bytes:
        request, key = unpack(call.body), str(uuid.uuid4())
        with self.open() as database:
            database.execute("INSERT INTO entries VALUES (?, ?, ?)", (request["bucket"], key, request["data"]))
        return pack({"bucket": request["bucket"], "key": key})

    def read(self, call: Call) -> bytes:
        with self.open() as database:
            return pack(self.filled(database, unpack(call.body)))

    def filled(self, database: sqlite3.Connection, wanted: dict[str, Any]) -> dict[str, Any]:
        place = (wanted["bucket"], wanted["key"])
        row = database.execute("SELECT data FROM entries WHERE bucket = ? AND key = ?", place).fetchone()
        if row is None:
            raise Permanent(f"no entry {wanted['key']} in the bucket {wanted['bucket']}")
        related = {
            name: [self.filled(database, entry) for entry in entries]
            for name, entries in wanted.get("relations", {}).items()
        }
        return {**wanted, "data": row[0], "relations": related}


with tempfile.TemporaryDirectory() as directory:
    store = Store(f"{directory}/store.db")
    writer, readers = Worker(URL, "dcp"), Worker(URL, "dcp", concurrency=4)
    writer.add("example.storage.write", store.write)
    readers.add("example.storage.read", store.read)
    with writer, readers, Client(URL, "dcp") as client:

        def write(bucket: str, data: str) -> Any:
            return unpack(client.call("example.storage.write", pack({"bucket": bucket, "data": data})).body)

        comments = [write("comment", text) for text in ("first comment", "second comment")]
        ada = write("user", "Ada")
        wanted = {**ada, "relations": {"comments": comments}}
        found = unpack(client.call("example.storage.read", pack(wanted)).body)
        print(f"{found['data']} wrote: {', '.join(entry['data'] for entry in found['relations']['comments'])}")
