-- The shop of the demo: what is there with and without effect.
\set ON_ERROR_STOP on
SET client_min_messages = warning;

CREATE ROLE clerk LOGIN;        -- writes the invoices
CREATE ROLE app LOGIN;          -- the nightly job
CREATE ROLE approver LOGIN;     -- approves large charges
CREATE ROLE ops LOGIN;          -- the sweeper
CREATE ROLE watch LOGIN;        -- the progress line and the report

CREATE TABLE invoice (
	invoice_no	text PRIMARY KEY,
	customer	text NOT NULL,
	amount		numeric(12,2) NOT NULL CHECK (amount > 0),
	currency	char(3) NOT NULL,
	due			date NOT NULL       -- in that night's firing
);

-- The job's own write, one row an invoice that it has dealt with.
CREATE TABLE receipt (
	invoice_no		text PRIMARY KEY REFERENCES invoice,
	written_by		text NOT NULL,
	fencing_token	bigint,
	written_at		timestamptz NOT NULL DEFAULT clock_timestamp()
);

GRANT INSERT ON invoice TO clerk;
GRANT SELECT ON invoice TO app, watch;
GRANT SELECT, INSERT ON receipt TO app;
GRANT SELECT ON receipt TO watch;
