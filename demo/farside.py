#!/usr/bin/env python3
"""The far side: a payment provider that charges whenever it is asked.

It is the outside world of the demo, and made to be as unhelpful as the real one:

* it has its own storage (SQLite), which nothing but it can write;
* it takes its time before and after charging;
* every so often it charges and then drops the connection without an answer;
* every so often it answers 503 and has charged nothing;
* it ignores the Idempotency-Key header: asked twice, it charges twice.

What it does promise is a bound: a request is charged within PATIENCE + SLOWEST
seconds of being sent, or never.  A resolver needs such a bound to be able to say
that something did not happen.

    POST /charge    {"reference", "invoice", "customer", "amount", "currency"}
    GET  /charges?reference=R        the charges made under that reference
    GET  /charges                    all of them
"""
import argparse
import json
import random
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep
from urllib.parse import parse_qs, urlsplit

from common import die_with_parent

PATIENCE = 1.0              # seconds it waits for the rest of a request
USUAL = (0.005, 0.030)      # seconds, before the charge and again after it
SLOW = (0.080, 0.150)       # the same, for one request in twenty
SLOWEST = 2 * SLOW[1]
DROP_EVERY = (8, 20)        # one lost answer in so many charges
REFUSE_EVERY = (25, 45)     # one 503 in so many requests


class Storage:
    """The provider's own books."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = wal")
        self.db.execute("""CREATE TABLE charge (
            id INTEGER PRIMARY KEY, reference TEXT NOT NULL, invoice TEXT NOT NULL,
            customer TEXT NOT NULL, amount TEXT NOT NULL, currency TEXT NOT NULL)""")
        self.db.execute("CREATE INDEX charge_reference ON charge (reference)")

    def charge(self, order):
        """No look at what was charged before: that is the point."""
        with self.lock, self.db:
            done = self.db.execute(
                "INSERT INTO charge (reference, invoice, customer, amount, currency)"
                " VALUES (:reference, :invoice, :customer, :amount, :currency)", order)
            return f"ch_{done.lastrowid:05d}"

    def charges(self, reference=None):
        query = "SELECT id, reference, invoice, amount, currency FROM charge"
        with self.lock:
            rows = self.db.execute(
                query + (" WHERE reference = ?" if reference else "") + " ORDER BY id",
                (reference,) if reference else ()).fetchall()
        return [{"charge": f"ch_{r[0]:05d}", "reference": r[1], "invoice": r[2],
                 "amount": r[3], "currency": r[4]} for r in rows]


class Moods:
    """When it is slow, refuses, or loses the answer.  The gaps between two
    mishaps are drawn, not each mishap, so that a night never goes without."""

    def __init__(self, seed, drop_every):
        self.rng = random.Random(seed)
        self.drop_every = drop_every
        self.lock = threading.Lock()
        self.to_drop = self.rng.randint(*drop_every)
        self.to_refuse = self.rng.randint(*REFUSE_EVERY)

    def pauses(self):
        with self.lock:
            span = SLOW if self.rng.random() < 0.05 else USUAL
            return self.rng.uniform(*span), self.rng.uniform(*span)

    def refuses(self):
        with self.lock:
            self.to_refuse -= 1
            if self.to_refuse > 0:
                return False
            self.to_refuse = self.rng.randint(*REFUSE_EVERY)
            return True

    def loses_answer(self):
        with self.lock:
            self.to_drop -= 1
            if self.to_drop > 0:
                return False
            self.to_drop = self.rng.randint(*self.drop_every)
            return True


class FarSide(BaseHTTPRequestHandler):
    timeout = PATIENCE
    storage = None
    moods = None

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        try:
            body = self.rfile.read(length)
        except OSError:
            body = b""
        if len(body) < length:      # the caller died half way: nothing is charged
            self.close_connection = True
            return
        before, after = self.moods.pauses()
        sleep(before)
        if self.moods.refuses():
            self.answer(503, {"error": "try again later, nothing was charged"})
            return
        order = json.loads(body)
        charge = self.storage.charge(order)
        sleep(after)
        if self.moods.loses_answer():
            self.close_connection = True
            return
        self.answer(200, {"charge": charge, "reference": order["reference"]})

    def do_GET(self):
        reference = parse_qs(urlsplit(self.path).query).get("reference", [None])[0]
        self.answer(200, self.storage.charges(reference))

    def answer(self, status, document):
        body = json.dumps(document).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass                    # nobody is left to hear it

    def log_message(self, *args):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drop-every", type=int, nargs=2, default=DROP_EVERY)
    options = parser.parse_args()
    die_with_parent()
    FarSide.storage = Storage(options.storage)
    FarSide.moods = Moods(options.seed, options.drop_every)
    server = ThreadingHTTPServer(("127.0.0.1", 0), FarSide)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
