"""What the processes of the demo share."""
import json
import os
import signal
import sys
import threading

import psycopg2

JOB = "nightly"
SEND_WITHIN = 0.5   # seconds for which a `go` is acted on; see schema.sql, settle
LARGE = 450         # a charge above this needs an approval


def connect(role, name, autocommit=True):
    """A connection to the throw-away cluster (PGHOST, PGPORT and PGDATABASE say where).

    Autocommit matters: with it, begin_effect is committed as it returns, and says `go`.
    """
    db = psycopg2.connect(user=role, application_name=name)
    db.autocommit = autocommit
    return db


def tell(event, **facts):
    """One line to the supervisor."""
    line = json.dumps({"event": event, **facts}) + "\n"
    try:
        os.write(sys.stdout.fileno(), line.encode())
    except BrokenPipeError:
        os._exit(1)             # the supervisor is gone: so is the night


def die_with_parent():
    """Leave when the supervisor does, however it went: its end of our stdin closes then."""
    def watch():
        while os.read(0, 1024):
            pass
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()
