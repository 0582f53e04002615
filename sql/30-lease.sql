-- lease: who holds a job, under which token, until when.
--
-- Keys are COLLATE "C": their order must not move with an operating system's
-- collation library.  Rows of effect.lease are never deleted, since the last
-- token of a job must outlive every holder.

CREATE TABLE effect.lease (
	job_key			text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(job_key) <= 255),
	owner			text,
	fencing_token	bigint NOT NULL CHECK (fencing_token > 0),
	lease_until		timestamptz NOT NULL,
	lease_for		interval NOT NULL,
	firing			text COLLATE "C",
	nonce			uuid,
	granted_at		timestamptz NOT NULL,
	CONSTRAINT lease_pkey PRIMARY KEY (job_key)
) WITH (fillfactor = 50);
COMMENT ON TABLE effect.lease IS
	'one row a job for ever: the current fencing token, and its holder (owner NULL: free)';
SELECT pg_catalog.pg_extension_config_dump('effect.lease', '');

CREATE TABLE effect.run (
	job_key				text COLLATE "C" NOT NULL,
	fencing_token		bigint NOT NULL,
	owner				text NOT NULL,
	firing				text COLLATE "C",
	outcome				effect.run_outcome NOT NULL DEFAULT 'running',
	started_at			timestamptz NOT NULL,
	ended_at			timestamptz,
	detail				jsonb,
	role_name			name NOT NULL,
	application_name	text,
	client_addr			inet,
	CONSTRAINT run_pkey PRIMARY KEY (job_key, fencing_token)
) WITH (fillfactor = 80);
COMMENT ON TABLE effect.run IS 'one row a grant of a lease: who ran, when, and how it ended';
SELECT pg_catalog.pg_extension_config_dump('effect.run', '');

CREATE TABLE effect.firing (
	job_key			text COLLATE "C" NOT NULL,
	firing			text COLLATE "C" NOT NULL,
	queued_at		timestamptz,
	fencing_token	bigint,
	finished_at		timestamptz,
	CONSTRAINT firing_pkey PRIMARY KEY (job_key, firing),
	CONSTRAINT firing_waits_or_finished CHECK ((queued_at IS NULL) <> (finished_at IS NULL)
		AND (finished_at IS NULL) = (fencing_token IS NULL))
);
CREATE INDEX firing_queue_idx ON effect.firing (job_key, queued_at, firing) WHERE finished_at IS NULL;
COMMENT ON TABLE effect.firing IS
	'the firings of a job that wait their turn, and those that a run has finished: each is run to its end once';
SELECT pg_catalog.pg_extension_config_dump('effect.firing', '');

-- COST: a planner that may choose should call these last.  They must never
-- stand in a WHERE clause at all: it may call them for rows it then drops.
CREATE FUNCTION effect.claim_lease(
	job_key text, owner text, lease_for interval DEFAULT NULL,
	firing text DEFAULT NULL, nonce uuid DEFAULT NULL,
	OUT verdict effect.lease_verdict, OUT fencing_token bigint,
	OUT lease_until timestamptz, OUT holder text, OUT firing text,
	OUT asked effect.lease_verdict, OUT checkpoint jsonb)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_claim_lease'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.claim_lease(text, text, interval, text, uuid) IS
	'take the lease of a job if it is free or expired; one row always, the verdict says what happened';

CREATE FUNCTION effect.claim_any(
	job_keys text[], owner text, lease_for interval DEFAULT NULL,
	OUT job_key text, OUT verdict effect.lease_verdict, OUT fencing_token bigint,
	OUT lease_until timestamptz, OUT holder text, OUT firing text,
	OUT asked effect.lease_verdict, OUT checkpoint jsonb)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_claim_any'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.claim_any(text[], text, interval) IS
	'take the lease of the first of these jobs that is free: one lease at most';

CREATE FUNCTION effect.renew_lease(
	job_key text, fencing_token bigint, lease_for interval DEFAULT NULL)
	RETURNS timestamptz
	AS 'MODULE_PATHNAME', 'effect_renew_lease'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.renew_lease(text, bigint, interval) IS
	'heartbeat: the lease lasts from now on as long again, never shorter; NULL: fenced, stop';

CREATE FUNCTION effect.release_lease(
	job_key text, fencing_token bigint,
	outcome effect.run_outcome DEFAULT 'finished', detail jsonb DEFAULT NULL)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'effect_release_lease'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.release_lease(text, bigint, effect.run_outcome, jsonb) IS
	'end the run as finished or failed and free the lease; false: fenced';

CREATE FUNCTION effect.revoke_lease(job_key text, reason text) RETURNS bigint
	AS 'MODULE_PATHNAME', 'effect_revoke_lease'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.revoke_lease(text, text) IS
	'operator: fence the holder now; the token revoked, NULL where nobody held it';

CREATE VIEW effect.leases AS
	SELECT l.job_key, l.owner, l.fencing_token, l.firing, l.granted_at, l.lease_until, l.lease_for,
		   CASE WHEN l.owner IS NULL THEN 'free'
				WHEN l.lease_until > pg_catalog.clock_timestamp() THEN 'live'
				ELSE 'expired' END AS status,
		   (SELECT pg_catalog.count(*) FROM effect.firing f
			 WHERE f.job_key = l.job_key AND f.finished_at IS NULL) AS queued
	  FROM effect.lease l;
COMMENT ON VIEW effect.leases IS
	'who holds what, since when and until when, and how many firings wait; expired: may be taken over, or revived by its holder''s renewal';

CREATE VIEW effect.runs AS
	SELECT r.job_key, r.fencing_token, r.owner, r.firing, r.outcome, r.started_at, r.ended_at,
		   COALESCE(r.ended_at, pg_catalog.clock_timestamp()) - r.started_at AS duration,
		   CASE WHEN effect.may_read_bodies() THEN r.detail END AS detail, r.role_name, r.application_name, r.client_addr
	  FROM effect.run r;
COMMENT ON VIEW effect.runs IS
	'every grant of a lease and how it ended; detail is NULL for roles that may not resolve';

