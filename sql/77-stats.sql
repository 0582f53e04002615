-- stats: counters that survive a rollback, and the views people judge their safety by.
--
-- A call counts in its backend's memory; what is counted is written down as
-- deltas, in rows of its own that nobody waits for, and sweep folds them into
-- one row an hour, later into one for all that is past.

CREATE TABLE effect.counter_delta (
	id			uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
	at			timestamptz NOT NULL,
	kind		text COLLATE "C" NOT NULL,
	name		text COLLATE "C" NOT NULL,
	counter		text COLLATE "C" NOT NULL,
	n			bigint NOT NULL,
	CONSTRAINT counter_delta_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE effect.counter_delta IS
	'what sessions have counted since sweep last folded it; append only, no row is written twice';
SELECT pg_catalog.pg_extension_config_dump('effect.counter_delta', '');

CREATE TABLE effect.counter (
	kind		text COLLATE "C" NOT NULL,
	name		text COLLATE "C" NOT NULL,
	counter		text COLLATE "C" NOT NULL,
	hour		timestamptz NOT NULL,
	n			bigint NOT NULL,
	CONSTRAINT counter_pkey PRIMARY KEY (kind, name, counter, hour)
);
CREATE INDEX counter_hour_idx ON effect.counter (hour);
COMMENT ON TABLE effect.counter IS
	'what was counted, an hour a row for two days, then in one row (hour -infinity); sweep alone writes it';
SELECT pg_catalog.pg_extension_config_dump('effect.counter', '');

CREATE VIEW effect.counters AS
	SELECT u.kind, u.name, u.counter, u.hour, pg_catalog.sum(u.n)::bigint AS n
	  FROM (SELECT c.kind, c.name, c.counter, c.hour, c.n FROM effect.counter c
			UNION ALL
			SELECT d.kind, d.name, d.counter, pg_catalog.date_trunc('hour', d.at, 'UTC'), d.n
			  FROM effect.counter_delta d) AS u
	 GROUP BY u.kind, u.name, u.counter, u.hour;
COMMENT ON VIEW effect.counters IS
	'what was counted, per job and per action, by the hour it was written down (UTC; -infinity: more than two days ago)';

-- The sums of one job or action as one jsonb, which is how the views below read
-- a counter that may never have moved.
CREATE VIEW effect.counter_totals AS
	SELECT t.kind, t.name, pg_catalog.jsonb_object_agg(t.counter, t.n) AS n
	  FROM (SELECT u.kind, u.name, u.counter, pg_catalog.sum(u.n)::bigint AS n
			  FROM (SELECT c.kind, c.name, c.counter, c.n FROM effect.counter c
					UNION ALL
					SELECT d.kind, d.name, d.counter, d.n FROM effect.counter_delta d) AS u
			 GROUP BY u.kind, u.name, u.counter) AS t
	 GROUP BY t.kind, t.name;
COMMENT ON VIEW effect.counter_totals IS 'per job and per action: every counter that ever moved, as one document';

-- Found from created_at above sweep's mark and from its list, never by reading
-- the ledger: the planner is not asked.
CREATE FUNCTION effect.open_keys() RETURNS SETOF uuid
	AS 'MODULE_PATHNAME', 'effect_open_keys'
	LANGUAGE C STABLE PARALLEL UNSAFE COST 1000 ROWS 100;
COMMENT ON FUNCTION effect.open_keys() IS
	'keys of the effects that have not ended: claimed, submitted and unknown ones (and some that have just ended)';

CREATE VIEW effect.open_effects AS
	SELECT e.effect_key, e.action, e.target, e.state, e.attempt, e.job_key, e.fencing_token, e.run_id, e.held,
		   e.created_at, e.submitted_at, e.updated_at, e.busy_until,
		   COALESCE(e.unknown_since, e.submitted_at, e.created_at) AS since,
		   pg_catalog.clock_timestamp() - COALESCE(e.unknown_since, e.submitted_at, e.created_at) AS age,
		   e.unknown_reason, e.checks, e.next_check, e.inputs, e.terms_shown, e.late_answer
	  FROM effect.open_keys() AS k(effect_key)
	  JOIN effect.effects e ON e.effect_key = k.effect_key
	 WHERE e.state <> 'done';
COMMENT ON VIEW effect.open_effects IS
	'every effect that has not ended, with its age: found without reading the whole ledger, as long as sweep runs';

CREATE VIEW effect.unknown_effects AS
	SELECT e.effect_key, e.action, e.target, e.attempt, e.job_key, e.fencing_token, e.submitted_at,
		   e.since AS unknown_since, e.age, e.unknown_reason AS reason, e.checks, e.next_check, u.checked_by,
		   COALESCE(a.on_unknown, 'check') AS on_unknown, a.resolver, e.inputs, e.late_answer
	  FROM effect.open_effects e
	  LEFT JOIN effect.unknown u ON u.effect_key = e.effect_key
	  LEFT JOIN effect.action a ON a.action = e.action
	 WHERE e.state = 'unknown'
	 ORDER BY unknown_since;
COMMENT ON VIEW effect.unknown_effects IS
	'effects that may have happened, oldest first, with what a superseded run said of them';

CREATE VIEW effect.awaiting_approval AS
	SELECT e.effect_key, e.action, e.target, e.inputs, e.terms_shown,
		   e.created_at AS since, e.created_at + a.approve_within AS expires,
		   a.approvals_required, g.given
	  FROM effect.open_effects e
	  JOIN effect.action a ON a.action = e.action
	  JOIN effect.ledger l ON l.effect_key = e.effect_key
	  CROSS JOIN LATERAL (
		SELECT pg_catalog.count(*)::integer AS given
		  FROM effect.approval p
		 WHERE p.effect_key = e.effect_key AND p.revoked_at IS NULL
		   AND (p.expires_at IS NULL OR p.expires_at > pg_catalog.clock_timestamp())
		   AND (p.terms IS NULL OR l.terms_shown IS NULL OR p.terms = l.terms_shown)
		   AND (a.approve_within IS NULL OR p.approved_at <= e.created_at + a.approve_within)) AS g
	 WHERE e.state = 'claimed' AND a.approvals_required > g.given
	   AND (a.approve_within IS NULL OR e.created_at + a.approve_within > pg_catalog.clock_timestamp());
COMMENT ON VIEW effect.awaiting_approval IS
	'claimed effects that still lack approvals, and until when they may be given';

CREATE VIEW effect.abandoned_claims AS
	SELECT e.effect_key, e.action, e.target, e.attempt, e.job_key, e.fencing_token, e.run_id,
		   e.updated_at AS since, pg_catalog.clock_timestamp() - e.updated_at AS age,
		   CASE WHEN e.submitted_at IS NOT NULL THEN 'its last attempt did not happen: nobody has made the next one'
				WHEN NOT l.held THEN 'given back before it was submitted'
				WHEN e.job_key IS NOT NULL THEN 'its run is over'
				ELSE 'its time was up' END AS why
	  FROM effect.open_effects e
	  JOIN effect.ledger l ON l.effect_key = e.effect_key
	 WHERE e.state = 'claimed' AND NOT e.held
	   AND e.effect_key NOT IN (SELECT w.effect_key FROM effect.awaiting_approval w);
COMMENT ON VIEW effect.abandoned_claims IS
	'claimed effects that nobody holds and nobody has submitted: the next attempt may take them, if there is one';

-- The numbers of jobs and of actions are views, and functions that read them: a
-- function is planned by itself and never compiled, and JIT takes many times as
-- long as they do.

-- Percentiles are those of the last 200 runs that came to an end by themselves.
-- The totals are summed once, though they are asked twice.
CREATE VIEW effect.job_numbers AS
	WITH totals AS MATERIALIZED (
		SELECT t.name, t.n FROM effect.counter_totals t WHERE t.kind = 'job' AND t.name <> ''
	)
	SELECT k.job_key, j.job_key IS NOT NULL AS registered, j.overlap, j.every,
		   COALESCE(j.lease_for, l.lease_for) AS lease_for, COALESCE(j.paused, false) AS paused,
		   r.runs, r.p50, r.p99, r.max, r.last_started, r.last_finished,
		   (SELECT pg_catalog.min(n.ended_at) FROM effect.run n
			 WHERE n.job_key = k.job_key AND n.fencing_token > r.good_token AND n.outcome <> 'running') AS failed_since,
		   r.came_back, t.firing AS stuck_firing, t.times AS stuck_times,
		   (SELECT pg_catalog.count(*) FROM effect.firing f
			 WHERE f.job_key = k.job_key AND f.finished_at IS NULL) AS waiting,
		   CASE WHEN NOT j.paused AND COALESCE(j.anchor, '-infinity') < pg_catalog.clock_timestamp()
				THEN GREATEST(COALESCE(r.last_finished, j.registered_at), j.anchor) + j.every
					+ COALESCE(j.lease_for, '0') END AS due_by,
		   COALESCE(c.n, '{}') AS n
	  FROM (SELECT s.job_key FROM effect.lease s UNION SELECT g.job_key FROM effect.job g
			UNION SELECT n.name FROM totals n) AS k
	  LEFT JOIN effect.job j ON j.job_key = k.job_key
	  LEFT JOIN effect.lease l ON l.job_key = k.job_key
	  LEFT JOIN totals c ON c.name = k.job_key
	  CROSS JOIN LATERAL (
		SELECT pg_catalog.count(*) AS runs,
			   pg_catalog.percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY i.ended_at - i.started_at)
				FILTER (WHERE i.outcome IN ('finished', 'failed')) AS p,
			   pg_catalog.max(i.started_at) AS last_started,
			   pg_catalog.max(i.ended_at) FILTER (WHERE i.outcome = 'finished') AS last_finished,
			   pg_catalog.count(*) FILTER (WHERE i.outcome = 'fenced'
				AND i.ended_at > pg_catalog.clock_timestamp() - '1 day'::interval) AS came_back,
			   COALESCE(pg_catalog.max(i.fencing_token) FILTER (WHERE i.outcome = 'finished'),
				pg_catalog.min(i.fencing_token) - 1) AS good_token
		  FROM (SELECT n.fencing_token, n.outcome, n.started_at, n.ended_at FROM effect.run n
				 WHERE n.job_key = k.job_key ORDER BY n.fencing_token DESC LIMIT 200) AS i) AS w
	  CROSS JOIN LATERAL (SELECT w.runs, w.p[1] AS p50, w.p[2] AS p99, w.p[3] AS max, w.last_started,
								 w.last_finished, w.came_back, w.good_token) AS r
	  LEFT JOIN LATERAL (
		SELECT q.firing, pg_catalog.count(*) AS times
		  FROM (SELECT n.firing, n.outcome FROM effect.run n
				 WHERE n.job_key = k.job_key ORDER BY n.fencing_token DESC LIMIT 20) AS q
		 WHERE q.outcome IN ('abandoned', 'fenced', 'failed') AND q.firing IS NOT NULL
		 GROUP BY q.firing
		HAVING pg_catalog.count(*) >= 3
		   AND NOT EXISTS (SELECT FROM effect.firing f WHERE f.job_key = k.job_key
							AND f.firing = q.firing AND f.finished_at IS NOT NULL)
		 ORDER BY 2 DESC, 1 LIMIT 1) AS t ON true;
COMMENT ON VIEW effect.job_numbers IS
	'what job_stats and advice both read: the numbers of each job, before anything is said of them';

CREATE FUNCTION effect.job_numbers() RETURNS SETOF effect.job_numbers
	LANGUAGE sql STABLE COST 1000 ROWS 50 SET jit = off
	BEGIN ATOMIC
	SELECT * FROM effect.job_numbers;
	END;
COMMENT ON FUNCTION effect.job_numbers() IS 'the view of this name, planned by itself and not compiled';

CREATE VIEW effect.lookalikes AS
	WITH recent AS MATERIALIZED (
		SELECT l.action, l.target, l.effect_key FROM effect.ledger l
		 ORDER BY l.created_at DESC LIMIT 5000
	), suspects AS (
		SELECT l.action, l.target, l.inputs, l.created_at
		  FROM (SELECT c.target FROM recent c GROUP BY c.target
				HAVING pg_catalog.min(c.action) <> pg_catalog.max(c.action)) AS t
		  JOIN recent r ON r.target = t.target
		  JOIN effect.ledger l ON l.effect_key = r.effect_key
	), twins AS (
		SELECT pg_catalog.array_agg(DISTINCT r.action ORDER BY r.action) AS names, r.target,
			   r.inputs = '{}' AS bare, pg_catalog.max(r.created_at) AS latest
		  FROM suspects r WHERE r.inputs IS NOT NULL
		 GROUP BY r.target, r.inputs HAVING pg_catalog.min(r.action) <> pg_catalog.max(r.action)
	), names AS (
		SELECT 'job' AS kind, l.job_key AS name FROM effect.lease l
		UNION SELECT 'job', j.job_key FROM effect.job j
		UNION SELECT 'action', a.action FROM effect.action a
		UNION SELECT c.kind, c.name FROM effect.counter c WHERE c.name <> ''
		UNION SELECT d.kind, d.name FROM effect.counter_delta d WHERE d.name <> ''
	)
	SELECT 'action' AS kind, t.names,
		   CASE WHEN t.bare THEN 'same target, no inputs' ELSE 'same target and inputs' END AS why,
		   pg_catalog.count(*) AS times, pg_catalog.min(t.target) AS example, pg_catalog.max(t.latest) AS latest
	  FROM twins t GROUP BY t.names, t.bare
	UNION ALL
	SELECT n.kind, pg_catalog.array_agg(n.name ORDER BY n.name), 'one name, spelt differently',
		   pg_catalog.count(*), NULL, NULL
	  FROM names n
	 GROUP BY n.kind, pg_catalog.regexp_replace(pg_catalog.lower(n.name), '[[:punct:][:space:]]+', '', 'g')
	HAVING pg_catalog.count(*) > 1;
COMMENT ON VIEW effect.lookalikes IS
	'one thing under two names: the same target and inputs under different actions (of the last 5,000 effects), and names that differ in case and punctuation only';

-- How many effects of an action are open, and since when.
CREATE VIEW effect.action_numbers AS
	WITH totals AS MATERIALIZED (
		SELECT t.name, t.n FROM effect.counter_totals t WHERE t.kind = 'action' AND t.name <> ''
	)
	SELECT k.action, a.action IS NOT NULL AS registered, a.identity, COALESCE(a.on_unknown, 'check') AS on_unknown,
		   a.resolver, COALESCE(a.approvals_required, 0) AS approvals_required, a.registered_by,
		   COALESCE(o.unknown, 0) AS unknown, o.unknown_since, COALESCE(o.checks, 0) AS checks,
		   COALESCE(o.submitted, 0) AS submitted,
		   COALESCE(b.n, 0) AS abandoned, b.since AS abandoned_since,
		   COALESCE(w.n, 0) AS awaiting, COALESCE(p.n, 0) AS unused, p.since AS unused_since,
		   COALESCE(c.n, '{}') AS n
	  FROM (SELECT g.action FROM effect.action g
			UNION SELECT t.name FROM totals t
			UNION SELECT q.action FROM effect.open_effects q) AS k(action)
	  LEFT JOIN effect.action a ON a.action = k.action
	  LEFT JOIN totals c ON c.name = k.action
	  LEFT JOIN (SELECT e.action, pg_catalog.count(*) FILTER (WHERE e.state = 'unknown') AS unknown,
						pg_catalog.min(e.since) FILTER (WHERE e.state = 'unknown') AS unknown_since,
						pg_catalog.max(e.checks) AS checks,
						pg_catalog.count(*) FILTER (WHERE e.state = 'submitted') AS submitted
				   FROM effect.open_effects e GROUP BY e.action) AS o ON o.action = k.action
	  LEFT JOIN (SELECT d.action, pg_catalog.count(*) AS n, pg_catalog.min(d.since) AS since
				   FROM effect.abandoned_claims d GROUP BY d.action) AS b ON b.action = k.action
	  LEFT JOIN (SELECT v.action, pg_catalog.count(*) AS n
				   FROM effect.awaiting_approval v GROUP BY v.action) AS w ON w.action = k.action
	  LEFT JOIN (SELECT u.action, pg_catalog.count(*) AS n, pg_catalog.min(u.approved_at) AS since
				   FROM effect.unused_approvals u WHERE u.state <> 'done' GROUP BY u.action) AS p ON p.action = k.action;
COMMENT ON VIEW effect.action_numbers IS
	'what action_stats and advice both read: the numbers of each action, before anything is said of them';

CREATE FUNCTION effect.action_numbers() RETURNS SETOF effect.action_numbers
	LANGUAGE sql STABLE COST 1000 ROWS 50 SET jit = off
	BEGIN ATOMIC
	SELECT * FROM effect.action_numbers;
	END;
COMMENT ON FUNCTION effect.action_numbers() IS 'the view of this name, planned by itself and not compiled';

CREATE VIEW effect.advice AS
	SELECT a.severity, 'job'::text AS kind, j.job_key AS name, a.code, a.since, a.advice, a.next_step
	  FROM effect.job_numbers() j
	  CROSS JOIN LATERAL (VALUES
		('warning', 'overdue', j.due_by < pg_catalog.clock_timestamp(), j.due_by,
		 pg_catalog.format('overdue: no run finished within every (%s) and lease_for (%s)', j.every,
			COALESCE(j.lease_for, '0')),
		 pg_catalog.format('SELECT * FROM effect.runs WHERE job_key = %L ORDER BY started_at DESC LIMIT 5;', j.job_key)),
		('warning', 'stuck_firing', j.stuck_times IS NOT NULL, NULL,
		 pg_catalog.format('firing %s was tried %s times and never finished: it may kill its worker', j.stuck_firing, j.stuck_times),
		 pg_catalog.format('SELECT * FROM effect.runs WHERE job_key = %L AND firing = %L ORDER BY started_at DESC;',
			j.job_key, j.stuck_firing)),
		('warning', 'came_back', j.came_back > 0, NULL,
		 pg_catalog.format('%s of the last %s runs came back after their lease was taken: slow, not dead; renew at half the lease, or lengthen it',
			j.came_back, j.runs),
		 pg_catalog.format('SELECT * FROM effect.runs WHERE job_key = %L AND outcome = ''fenced'' ORDER BY started_at DESC;', j.job_key)),
		('advice', 'p99_over_every', j.p99 > j.every, NULL,
		 pg_catalog.format('p99 run time (%s) is over the interval (%s): a queue, not a schedule',
			pg_catalog.date_trunc('second', j.p99), j.every),
		 pg_catalog.format('SELECT effect.set_job(%L, every => %L);', j.job_key, '...')),
		('advice', 'p99_over_lease', j.p99 > j.lease_for AND NOT j.n ? 'renewed', NULL,
		 pg_catalog.format('p99 run time (%s) is over the lease (%s), and nobody renews: renew at half the lease, or split the job',
			pg_catalog.date_trunc('second', j.p99), j.lease_for),
		 pg_catalog.format('SELECT effect.set_job(%L, lease_for => %L);', j.job_key, '...')),
		('advice', 'lease_over_every', j.lease_for >= j.every, NULL,
		 pg_catalog.format('the lease (%s) is not shorter than the interval (%s): a crashed run blocks the next one',
			j.lease_for, j.every),
		 pg_catalog.format('SELECT effect.set_job(%L, lease_for => %L);', j.job_key, j.every / 2)),
		('advice', 'saturated', j.n ? 'saturated' AND EXISTS (
			SELECT FROM effect.counters c WHERE c.kind = 'job' AND c.name = j.job_key AND c.counter = 'saturated'
			AND c.hour >= pg_catalog.clock_timestamp() - '1 day'::interval), NULL,
		 'its queue was full within the last day: firings were dropped',
		 pg_catalog.format('SELECT effect.set_job(%L, queue_limit => ...);', j.job_key)),
		('advice', 'untested', (j.n ->> 'granted')::bigint >= 10
			AND NOT j.n ?| '{held,coalesced,queued,saturated,already_ran,overlapped}', NULL,
		 pg_catalog.format('its dedupe counters never moved in %s grants: untested; claim it twice at once and see the second refused',
			j.n ->> 'granted'),
		 pg_catalog.format('SELECT * FROM effect.job_stats WHERE job_key = %L;', j.job_key))
	  ) AS a(severity, code, applies, since, advice, next_step)
	 WHERE a.applies
	UNION ALL
	SELECT a.severity, 'action', k.action, a.code, a.since, a.advice, a.next_step
	  FROM effect.action_numbers() k
	  CROSS JOIN LATERAL (VALUES
		('critical', 'old_unknown', k.on_unknown <> 'drop' AND k.unknown_since < pg_catalog.clock_timestamp() - '1 hour'::interval,
		 k.unknown_since,
		 pg_catalog.format('%s effect(s) may have happened and nobody knows, the oldest since %s: look at the far side',
			k.unknown, pg_catalog.date_trunc('second', k.unknown_since)),
		 pg_catalog.format('SELECT * FROM effect.unknown_effects WHERE action = %L;', k.action)),
		('warning', 'unclear', k.on_unknown <> 'drop' AND k.resolver IS NOT NULL AND k.checks >= 3, k.unknown_since,
		 pg_catalog.format('its resolver has looked %s times at one effect and cannot tell', k.checks),
		 pg_catalog.format('SELECT * FROM effect.unknown_effects WHERE action = %L ORDER BY checks DESC;', k.action)),
		('warning', 'never_submitted', k.abandoned > 0, k.abandoned_since,
		 pg_catalog.format('%s claim(s) were never submitted, and nobody holds them', k.abandoned),
		 pg_catalog.format('SELECT * FROM effect.abandoned_claims WHERE action = %L;', k.action)),
		('warning', 'double', k.n ? 'doubles', NULL,
		 pg_catalog.format('%s suspected double(s): another attempt had done it when a late answer came', k.n ->> 'doubles'),
		 $q$SELECT * FROM effect.journal WHERE event = 'late_answer' ORDER BY id DESC LIMIT 20;$q$),
		('warning', 'same_transaction', k.n ? 'same_transaction', NULL,
		 pg_catalog.format('%s effect(s) were completed in the transaction that submitted them: a crash would have erased the evidence; COMMIT between the two',
			k.n ->> 'same_transaction'),
		 $q$SELECT * FROM effect.journal WHERE event = 'same_transaction' ORDER BY id DESC LIMIT 20;$q$),
		('advice', 'unused_approvals', k.unused_since < pg_catalog.clock_timestamp() - '1 day'::interval, k.unused_since,
		 pg_catalog.format('%s approval(s) were given and not used for more than a day', k.unused),
		 pg_catalog.format('SELECT * FROM effect.unused_approvals WHERE action = %L;', k.action)),
		('advice', 'unobserved', k.registered AND k.on_unknown = 'check' AND k.resolver IS NULL, NULL,
		 'unobserved: register a resolver, or poll effect.next_unknown() from outside',
		 pg_catalog.format('SELECT effect.set_action(%L, resolver => ''...'');', k.action)),
		('advice', 'untested', (k.n ->> 'go')::bigint >= 10 AND NOT k.n ?| '{duplicates,busy,mismatch}', NULL,
		 pg_catalog.format('its duplicates counter never moved in %s attempts: untested; begin one effect twice and see the second answered done',
			k.n ->> 'go'),
		 pg_catalog.format('SELECT * FROM effect.action_stats WHERE action = %L;', k.action))
	  ) AS a(severity, code, applies, since, advice, next_step)
	 WHERE a.applies
	UNION ALL
	SELECT 'advice', 'action', NULL, 'unused_approvals', pg_catalog.min(u.approved_at),
		   pg_catalog.format('%s approval(s) of more than a day ago are for keys that nobody has claimed', pg_catalog.count(*)),
		   'SELECT * FROM effect.unused_approvals WHERE action IS NULL;'
	  FROM effect.unused_approvals u
	 WHERE u.action IS NULL AND u.approved_at < pg_catalog.clock_timestamp() - '1 day'::interval
	HAVING pg_catalog.count(*) > 0
	UNION ALL
	SELECT 'advice', l.kind, l.names[1], 'lookalike', l.latest,
		   pg_catalog.format('%s: %s; if they are one thing, one of them must go: each has keys of its own',
			pg_catalog.array_to_string(l.names, ' and '), l.why),
		   'SELECT * FROM effect.lookalikes;'
	  FROM effect.lookalikes l WHERE l.why <> 'same target, no inputs';
COMMENT ON VIEW effect.advice IS
	'what the numbers mean, in sentences a person acts on, each with the SQL that would be the next step';

CREATE VIEW effect.job_stats AS
	SELECT j.job_key, j.registered, j.overlap, j.every, j.lease_for, j.paused, j.runs, j.p50, j.p99, j.max,
		   j.last_started, j.last_finished, j.failed_since, COALESCE(j.due_by < pg_catalog.clock_timestamp(), false) AS overdue,
		   j.due_by, j.waiting,
		   COALESCE((j.n ->> 'granted')::bigint, 0) AS granted,
		   COALESCE((j.n ->> 'finished')::bigint, 0) AS finished,
		   COALESCE((j.n ->> 'failed')::bigint, 0) AS failed,
		   COALESCE((j.n ->> 'stolen')::bigint, 0) AS stolen,
		   COALESCE((j.n ->> 'expired')::bigint, 0) AS expired,
		   COALESCE((j.n ->> 'revoked')::bigint, 0) AS revoked,
		   COALESCE((j.n ->> 'fenced')::bigint, 0) AS fenced,
		   COALESCE((j.n ->> 'renewed')::bigint, 0) AS renewed,
		   COALESCE((j.n ->> 'held')::bigint, 0) AS held,
		   COALESCE((j.n ->> 'coalesced')::bigint, 0) AS coalesced,
		   COALESCE((j.n ->> 'queued')::bigint, 0) AS queued,
		   COALESCE((j.n ->> 'saturated')::bigint, 0) AS saturated,
		   COALESCE((j.n ->> 'overlapped')::bigint, 0) AS overlapped,
		   COALESCE((j.n ->> 'already_ran')::bigint, 0) AS already_ran,
		   COALESCE((j.n ->> 'cooling_down')::bigint, 0) AS cooling_down,
		   COALESCE((j.n ->> 'paused')::bigint, 0) AS refused_paused,
		   COALESCE((j.n ->> 'quarantined')::bigint, 0) AS quarantined,
		   d.advice
	  FROM effect.job_numbers() j
  LEFT JOIN (SELECT a.name, pg_catalog.string_agg(a.advice, '; ' ORDER BY a.code) AS advice
			   FROM effect.advice a WHERE a.kind = 'job' GROUP BY a.name) AS d ON d.name = j.job_key;
COMMENT ON VIEW effect.job_stats IS
	'each job: run times of the last 200 runs against its interval and lease, what its claims were told since ever, and advice';

CREATE VIEW effect.action_stats AS
	SELECT k.action, k.registered, k.identity, k.on_unknown, k.resolver, k.approvals_required, k.registered_by,
		   CASE WHEN k.on_unknown = 'drop' THEN 0 ELSE k.unknown END AS unknown,
		   CASE WHEN k.on_unknown = 'drop' THEN k.unknown ELSE 0 END AS dropped,
		   k.unknown_since, k.submitted AS in_flight, k.abandoned AS abandoned_claims, k.awaiting AS awaiting_approval,
		   k.unused AS unused_approvals,
		   COALESCE((k.n ->> 'reserved')::bigint, 0) AS reserved,
		   COALESCE((k.n ->> 'go')::bigint, 0) AS attempts,
		   COALESCE((k.n ->> 'completed')::bigint, 0) AS completed,
		   COALESCE((k.n ->> 'applied')::bigint, 0) AS applied,
		   COALESCE((k.n ->> 'duplicates')::bigint, 0) AS duplicates,
		   COALESCE((k.n ->> 'closed')::bigint, 0) AS closed,
		   COALESCE((k.n ->> 'busy')::bigint, 0) AS busy,
		   COALESCE((k.n ->> 'fenced')::bigint, 0) AS fenced,
		   COALESCE((k.n ->> 'blocked')::bigint, 0) AS blocked,
		   COALESCE((k.n ->> 'unapproved')::bigint, 0) AS unapproved,
		   COALESCE((k.n ->> 'mismatch')::bigint, 0) AS mismatch,
		   COALESCE((k.n ->> 'quarantined')::bigint, 0) AS quarantined,
		   COALESCE((k.n ->> 'retracted')::bigint, 0) AS retracted,
		   COALESCE((k.n ->> 'lost')::bigint, 0) AS became_unknown,
		   COALESCE((k.n ->> 'found_happened')::bigint, 0) AS found_happened,
		   COALESCE((k.n ->> 'found_absent')::bigint, 0) AS found_absent,
		   COALESCE((k.n ->> 'resent')::bigint, 0) AS resent,
		   COALESCE((k.n ->> 'late_answers')::bigint, 0) AS late_answers,
		   COALESCE((k.n ->> 'doubles')::bigint, 0) AS doubles,
		   COALESCE((k.n ->> 'same_transaction')::bigint, 0) AS same_transaction,
		   COALESCE(rb.pruned, 0) AS bodies_pruned, COALESCE(rk.pruned, 0) AS keys_pruned,
		   rk.pruned_to AS keys_pruned_to,
		   d.advice
	  FROM effect.action_numbers() k
	  LEFT JOIN effect.retention rb ON rb.action = k.action AND rb.what = 'bodies'
	  LEFT JOIN effect.retention rk ON rk.action = k.action AND rk.what = 'keys'
  LEFT JOIN (SELECT a.name, pg_catalog.string_agg(a.advice, '; ' ORDER BY a.code) AS advice
			   FROM effect.advice a WHERE a.kind = 'action' GROUP BY a.name) AS d ON d.name = k.action;
COMMENT ON VIEW effect.action_stats IS
	'each kind of effect: how it is treated, what is open, what its callers were told since ever, and advice';

CREATE VIEW effect.attention AS
	SELECT r.severity, r.what, r.since, r.who, r.why, r.next_step
	  FROM (
		SELECT 'critical' AS severity, 'quarantine' AS what, c.quarantined_since AS since, c.site AS who,
			   'nothing is claimed or sent from here: ' || c.quarantine_reason AS why,
			   'SELECT effect.adopt_cluster();  -- only if this is the place that acts' AS next_step
		  FROM effect.cluster c WHERE c.quarantined_since IS NOT NULL
		UNION ALL
		SELECT 'warning', 'unknown', pg_catalog.min(u.unknown_since), u.action,
			   pg_catalog.format('%s effect(s) may have happened: nobody acts until someone has looked', pg_catalog.count(*)),
			   pg_catalog.format('SELECT * FROM effect.unknown_effects WHERE action = %L;  -- then effect.resolve_unknown()', u.action)
		  FROM effect.unknown_effects u WHERE u.on_unknown <> 'drop' GROUP BY u.action
		HAVING pg_catalog.min(u.unknown_since) >= pg_catalog.clock_timestamp() - '1 hour'::interval
		UNION ALL
		SELECT 'warning', 'expired lease', l.lease_until, l.job_key,
			   pg_catalog.format('run %s of %s is silent since its lease ended; the next claim or sweep takes it',
				l.fencing_token, l.owner),
			   pg_catalog.format('SELECT effect.revoke_lease(%L, ''silent'');', l.job_key)
		  FROM effect.lease l
		 WHERE l.owner IS NOT NULL AND l.lease_until < pg_catalog.clock_timestamp()
		UNION ALL
		SELECT 'info', 'approval', w.since, pg_catalog.format('%s %s', w.action, w.target),
			   pg_catalog.format('awaits %s more approval(s)%s', w.approvals_required - w.given,
				', until ' || pg_catalog.date_trunc('second', w.expires)::text),
			   pg_catalog.format('SELECT effect.approve(%L, SESSION_USER);', w.effect_key)
		  FROM effect.awaiting_approval w
		UNION ALL
		SELECT 'warning', 'fence gap', NULL, g.target::text, g.gap, g.next_step FROM effect.fence_gaps() g
		UNION ALL
		SELECT CASE WHEN s.swept_at > pg_catalog.clock_timestamp() - '5 minutes'::interval THEN 'info' ELSE 'warning' END,
			   'sweep', s.swept_at, NULL,
			   COALESCE('sweep last ran ' || pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - s.swept_at)::text || ' ago',
				'sweep has never run: nobody ends expired runs, calls resolvers or folds counters'),
			   CASE WHEN s.swept_at > pg_catalog.clock_timestamp() - '5 minutes'::interval
					  OR NOT EXISTS (SELECT FROM pg_catalog.pg_extension x WHERE x.extname = 'pg_cron')
				THEN 'SELECT * FROM effect.sweep();'
				ELSE $q$SELECT cron.schedule('effect sweep', '* * * * *', 'SELECT effect.sweep()');$q$ END
		  FROM (SELECT pg_catalog.max(t.swept_at) AS swept_at FROM effect.sweep_state t) AS s
		UNION ALL
		SELECT a.severity, a.kind || ' ' || a.code, a.since, a.name, a.advice, a.next_step FROM effect.advice a
	  ) AS r
	 ORDER BY pg_catalog.array_position('{critical,warning,advice,info}', r.severity::text), r.since NULLS LAST, r.what, r.who;
COMMENT ON VIEW effect.attention IS
	'the page for 3 a.m.: what needs a person, worst first, why, and the SQL that would be the next step; also when sweep last ran';

CREATE VIEW effect.metric_values AS
	SELECT pg_catalog.format('effect_%s_%s_total', t.kind, c.key) AS name,
		   pg_catalog.jsonb_build_object(CASE t.kind WHEN 'job' THEN 'job_key' ELSE t.kind END, t.name) AS labels,
		   c.value::double precision AS value
	  FROM effect.counter_totals t CROSS JOIN LATERAL pg_catalog.jsonb_each_text(t.n) AS c
	UNION ALL
	SELECT g.name, pg_catalog.jsonb_build_object('action', k.action), g.value
	  FROM effect.action_numbers() k CROSS JOIN LATERAL (VALUES
		('effect_unknown', CASE WHEN k.on_unknown = 'drop' THEN 0 ELSE k.unknown END::double precision),
		('effect_unknown_oldest_seconds', CASE WHEN k.on_unknown = 'drop' OR k.unknown_since IS NULL THEN 0
			ELSE EXTRACT(epoch FROM pg_catalog.clock_timestamp() - k.unknown_since) END::double precision),
		('effect_in_flight', k.submitted::double precision),
		('effect_abandoned_claims', k.abandoned::double precision),
		('effect_awaiting_approval', k.awaiting::double precision),
		('effect_unused_approvals', k.unused::double precision)) AS g(name, value)
	UNION ALL
	SELECT g.name, pg_catalog.jsonb_build_object('job_key', j.job_key), g.value
	  FROM effect.job_numbers() j CROSS JOIN LATERAL (VALUES
		('effect_job_run_p50_seconds', EXTRACT(epoch FROM j.p50)::double precision),
		('effect_job_run_p99_seconds', EXTRACT(epoch FROM j.p99)::double precision),
		('effect_job_run_max_seconds', EXTRACT(epoch FROM j.max)::double precision),
		('effect_job_every_seconds', EXTRACT(epoch FROM j.every)::double precision),
		('effect_job_lease_seconds', EXTRACT(epoch FROM j.lease_for)::double precision),
		('effect_job_overdue', COALESCE(j.due_by < pg_catalog.clock_timestamp(), false)::integer::double precision),
		('effect_job_waiting', j.waiting::double precision)) AS g(name, value)
	 WHERE g.value IS NOT NULL
	UNION ALL
	SELECT 'effect_lease_held', pg_catalog.jsonb_build_object('job_key', l.job_key),
		   (l.owner IS NOT NULL AND l.lease_until > pg_catalog.clock_timestamp())::integer::double precision
	  FROM effect.lease l
	UNION ALL
	SELECT 'effect_sweep_age_seconds', '{}',
		   COALESCE(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.max(s.swept_at))::double precision, 'Infinity')
	  FROM effect.sweep_state s
	UNION ALL
	SELECT 'effect_cluster_quarantined', '{}', pg_catalog.count(c.quarantined_since)::double precision FROM effect.cluster c;
COMMENT ON VIEW effect.metric_values IS 'what effect.metrics() returns';

CREATE FUNCTION effect.metrics(OUT name text, OUT labels jsonb, OUT value double precision)
	RETURNS SETOF record
	LANGUAGE sql STABLE SET jit = off
	BEGIN ATOMIC
	SELECT m.name, m.labels, m.value FROM effect.metric_values m;
	END;
COMMENT ON FUNCTION effect.metrics() IS
	'every number of the views as (name, labels, value), for exporters; doc/stats.md says what each is';
