-- What the shop needs for the night without effect.
\set ON_ERROR_STOP on

CREATE TABLE job_lease (
	job			text NOT NULL,
	firing		text NOT NULL,
	owner		text,
	lease_until	timestamptz,
	finished_at	timestamptz,
	PRIMARY KEY (job, firing)
);

-- Written after the call; whoever is in it is skipped on a retry.
CREATE TABLE charge_log (
	invoice_no	text PRIMARY KEY REFERENCES invoice,
	charge		text NOT NULL,
	logged_at	timestamptz NOT NULL DEFAULT clock_timestamp()
);

GRANT SELECT, INSERT, UPDATE ON job_lease TO app;
GRANT SELECT, INSERT ON charge_log TO app;
GRANT SELECT ON job_lease, charge_log TO watch;
