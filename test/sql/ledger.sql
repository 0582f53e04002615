\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- ledger: one effect a key, and what each call is told of it (doc/ledger.md).
--
-- Every top-level statement is a transaction of its own: that is how the calls
-- are made, and the only way to be told go.  Races are in the isolation specs.
SET client_min_messages = warning;
SET lock_timeout = '20s';	-- a test may fail, never hang
SET effect.default_settle = 0;	-- resolve.sql tests the settling time

SELECT plan(516);

-- A statement's answer in one word: its verdict, or its SQLSTATE.
CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;

--
-- The matrix: every state x every call x whose token.
--
-- An effect of the matrix has had two attempts: one under an old token, which
-- was retracted, and the one that brought it into its state.  Tokens of the
-- calls by key: right is its latest attempt's, stale the earlier attempt's,
-- foreign one that no attempt ever had.  Of claim and begin, with a job: right
-- is the run that made the attempt, stale the job's superseded run, foreign
-- the live run of another job.  Where a call takes no token (or a claim names
-- no job) the word stands under right.
--
-- claimed is held by a live holder, free is claimed and held by nobody.
--
CREATE TEMP TABLE expected (state text, call text, right_token text, stale text, "foreign" text);
COPY expected FROM stdin (DELIMITER ' ');
absent claim reserved fenced reserved
claimed claim busy fenced busy
free claim reserved fenced reserved
submitted claim busy fenced busy
unknown claim unknown fenced unknown
completed claim done done done
resolved claim done done done
closed claim closed closed closed
applied claim done done done
absent begin go_after_commit fenced go_after_commit
claimed begin busy fenced busy
free begin go_after_commit fenced go_after_commit
submitted begin busy fenced busy
unknown begin unknown fenced unknown
completed begin done done done
resolved begin done done done
closed begin closed closed closed
applied begin done done done
absent submit LE003 LE003 LE003
claimed submit go_after_commit fenced LE003
free submit go_after_commit fenced LE003
submitted submit busy fenced LE003
unknown submit unknown fenced LE003
completed submit done done done
resolved submit done done done
closed submit closed closed closed
applied submit done - done
absent complete LE003 LE003 LE003
claimed complete LE004 fenced LE003
free complete fenced fenced LE003
submitted complete done fenced LE003
unknown complete done fenced LE003
completed complete done done LE003
resolved complete done done LE003
closed complete closed closed LE003
applied complete done - LE003
absent retract LE003 LE003 LE003
claimed retract reserved fenced LE003
free retract reserved fenced LE003
submitted retract reserved fenced LE003
unknown retract LE004 fenced LE003
completed retract done done done
resolved retract done done done
closed retract closed closed closed
applied retract done - done
absent mark_unknown LE003 LE003 LE003
claimed mark_unknown LE004 fenced LE003
free mark_unknown LE004 fenced LE003
submitted mark_unknown unknown fenced LE003
unknown mark_unknown unknown fenced LE003
completed mark_unknown done done done
resolved mark_unknown done done done
closed mark_unknown closed closed closed
applied mark_unknown done - done
absent operator_unknown LE003 - -
claimed operator_unknown LE004 - -
free operator_unknown LE004 - -
submitted operator_unknown unknown - -
unknown operator_unknown unknown - -
completed operator_unknown done - -
resolved operator_unknown done - -
closed operator_unknown closed - -
applied operator_unknown done - -
absent close LE003 - -
claimed close closed - -
free close closed - -
submitted close LE004 - -
unknown close LE004 - -
completed close done - -
resolved close done - -
closed close closed - -
applied close done - -
absent reopen LE003 - -
claimed reopen LE004 - -
free reopen LE004 - -
submitted reopen LE004 - -
unknown reopen LE004 - -
completed reopen unknown - -
resolved reopen unknown - -
closed reopen unknown - -
applied reopen LE004 - -
absent happened LE003 - -
claimed happened LE004 - -
free happened LE004 - -
submitted happened LE010 - -
unknown happened done - -
completed happened LE004 - -
resolved happened done - -
closed happened LE004 - -
applied happened LE004 - -
absent did_not_happen LE003 - -
claimed did_not_happen LE004 - -
free did_not_happen claimed - -
submitted did_not_happen LE010 - -
unknown did_not_happen claimed - -
completed did_not_happen LE004 - -
resolved did_not_happen LE004 - -
closed did_not_happen LE004 - -
applied did_not_happen LE004 - -
absent other_attempt LE003 - -
claimed other_attempt LE009 - -
free other_attempt LE009 - -
submitted other_attempt LE009 - -
unknown other_attempt LE009 - -
completed other_attempt LE009 - -
resolved other_attempt LE009 - -
closed other_attempt LE009 - -
applied other_attempt LE009 - -
absent cannot_tell LE003 - -
claimed cannot_tell LE004 - -
free cannot_tell LE004 - -
submitted cannot_tell LE010 - -
unknown cannot_tell unknown - -
completed cannot_tell LE004 - -
resolved cannot_tell LE004 - -
closed cannot_tell LE004 - -
applied cannot_tell LE004 - -
absent explain reserved - -
claimed explain busy - -
free explain reserved - -
submitted explain busy - -
unknown explain unknown - -
completed explain done - -
resolved explain done - -
closed explain closed - -
applied explain done - -
absent apply apply - -
claimed apply busy - -
free apply busy - -
submitted apply busy - -
unknown apply unknown - -
completed apply done - -
resolved apply done - -
closed apply closed - -
applied apply done - -
absent once true - -
claimed once LE004 - -
free once LE004 - -
submitted once LE004 - -
unknown once LE004 - -
completed once false - -
resolved once false - -
closed once false - -
applied once false - -
\.

-- Two runs of the job, and another job's.
SELECT 1 FROM effect.claim_lease('ledger/matrix', 'first', '1 hour') \g /dev/null

-- One effect a cell of the matrix, each with a job and without.
CREATE TEMP TABLE cell AS
	SELECT e.state, e.call, w.whose, b.bound, w.expected,
		   format('%s %s %s', e.state, e.call, w.whose) AS target,
		   effect.effect_key('ledger/' || b.bound, format('%s %s %s', e.state, e.call, w.whose), effect.input_digest('{}')) AS key,
		   CASE WHEN e.state IN ('absent', 'applied') THEN 0 ELSE 1 END AS attempts
	  FROM expected e
	  CROSS JOIN LATERAL (VALUES ('right', e.right_token), ('stale', e.stale), ('foreign', e."foreign")) AS w (whose, expected)
	  CROSS JOIN (VALUES ('job'), ('alone')) AS b (bound)
	 WHERE w.expected <> '-'
	   AND NOT (b.bound = 'alone' AND e.call IN ('claim', 'begin') AND w.whose <> 'right');
CREATE FUNCTION pg_temp.setup(c cell, what text, token bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	by_job text := CASE WHEN c.bound = 'job' THEN 'ledger/matrix' END;
	its_token bigint := CASE WHEN c.bound = 'job' THEN token END;
BEGIN
	CASE what
		WHEN 'claim' THEN SELECT verdict INTO answer FROM effect.claim_effect('ledger/' || c.bound, c.target, '{}', by_job, its_token);
		WHEN 'submit' THEN SELECT verdict INTO answer FROM effect.submit_effect(c.key, token);
		WHEN 'retract' THEN SELECT verdict INTO answer FROM effect.retract_effect(c.key, token);
		WHEN 'mark' THEN SELECT verdict INTO answer FROM effect.mark_unknown(c.key, token, 'timed out');
		WHEN 'complete' THEN SELECT verdict INTO answer FROM effect.complete_effect(c.key, token, '{"answer": 1}');
		WHEN 'resolve' THEN SELECT effect.resolve_unknown(c.key, 'happened') INTO answer;
		WHEN 'close' THEN SELECT verdict INTO answer FROM effect.close_effect(c.key, 'not wanted');
		WHEN 'apply' THEN SELECT verdict INTO answer FROM effect.apply_effect('ledger/' || c.bound, c.target);
	END CASE;
	RETURN what || ' ' || answer;
END $$;

CREATE TEMP TABLE step (answer text);
INSERT INTO step SELECT pg_temp.setup(c, 'claim', 1) FROM cell c WHERE attempts = 1;
INSERT INTO step SELECT pg_temp.setup(c, 'retract', 1) FROM cell c WHERE attempts = 1;
SELECT effect.release_lease('ledger/matrix', 1) \g /dev/null
SELECT 1 FROM effect.claim_lease('ledger/matrix', 'second', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('ledger/elsewhere', 'third', '1 hour') \g /dev/null
INSERT INTO step SELECT pg_temp.setup(c, 'claim', 2) FROM cell c WHERE attempts = 1;
INSERT INTO step SELECT pg_temp.setup(c, 'retract', 2) FROM cell c WHERE state = 'free';
INSERT INTO step SELECT pg_temp.setup(c, 'close', NULL) FROM cell c WHERE state = 'closed';
INSERT INTO step SELECT pg_temp.setup(c, 'submit', 2) FROM cell c WHERE state IN ('submitted', 'unknown', 'completed', 'resolved');
INSERT INTO step SELECT pg_temp.setup(c, 'complete', 2) FROM cell c WHERE state = 'completed';
INSERT INTO step SELECT pg_temp.setup(c, 'mark', 2) FROM cell c WHERE state IN ('unknown', 'resolved');
INSERT INTO step SELECT pg_temp.setup(c, 'resolve', NULL) FROM cell c WHERE state = 'resolved';
INSERT INTO step SELECT pg_temp.setup(c, 'apply', NULL) FROM cell c WHERE state = 'applied';
SELECT bag_eq('SELECT DISTINCT answer FROM step',
	$$VALUES ('claim reserved'), ('retract reserved'), ('submit go_after_commit'), ('complete done'), ('mark unknown'),
			 ('resolve done'), ('close closed'), ('apply apply')$$, 'the effects of the matrix are set up');
CREATE TEMP TABLE before AS SELECT * FROM effect.ledger WHERE action LIKE 'ledger/%';

-- The calls.
CREATE TEMP TABLE answer AS
	SELECT c.*, pg_temp.told(CASE
		WHEN call IN ('claim', 'begin') THEN format('SELECT verdict FROM effect.%s_effect(%L, %L, ''{}'', %s)', call, 'ledger/' || bound, target,
			CASE WHEN bound = 'alone' THEN 'NULL, NULL'
				 WHEN whose = 'foreign' THEN '''ledger/elsewhere'', 1'
				 ELSE format('%L, %s', 'ledger/matrix', CASE whose WHEN 'right' THEN 2 ELSE 1 END) END)
		WHEN call IN ('submit', 'complete', 'retract') THEN format('SELECT verdict FROM effect.%s_effect(%L, %s)', call, key, token)
		WHEN call = 'mark_unknown' THEN format('SELECT verdict FROM effect.mark_unknown(%L, %s, ''in doubt'')', key, token)
		WHEN call = 'operator_unknown' THEN format('SELECT verdict FROM effect.mark_unknown(%L, NULL, ''in doubt'')', key)
		WHEN call = 'close' THEN format('SELECT verdict FROM effect.close_effect(%L, ''matrix'')', key)
		WHEN call = 'reopen' THEN format('SELECT verdict FROM effect.reopen_effect(%L, ''matrix'')', key)
		WHEN call IN ('happened', 'cannot_tell', 'did_not_happen') THEN format('SELECT effect.resolve_unknown(%L, %L, %s)', key, call, attempt)
		WHEN call = 'other_attempt' THEN format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', %s)', key, attempt + 1)
		WHEN call IN ('explain', 'apply') THEN format('SELECT verdict FROM effect.%s_effect(%L, %L)', call, 'ledger/' || bound, target)
		ELSE format('SELECT effect.once(%L, %L)', 'ledger/' || bound, target) END) AS told
	  FROM (SELECT *, CASE whose WHEN 'right' THEN CASE state WHEN 'applied' THEN 1 ELSE 2 END WHEN 'stale' THEN 1 ELSE 999 END AS token,
				   CASE state WHEN 'applied' THEN 1 ELSE 2 END AS attempt FROM cell) c;

SELECT is(string_agg(told, ' ' ORDER BY array_position('{right,stale,foreign}', whose)),
		  string_agg(expected, ' ' ORDER BY array_position('{right,stale,foreign}', whose)),
		  format('%s: %s an effect that is %s', CASE bound WHEN 'job' THEN 'with a job' ELSE 'without' END, call, state))
  FROM answer
 GROUP BY bound, call, state
 ORDER BY bound DESC, array_position('{claim,begin,submit,complete,retract,mark_unknown,operator_unknown,close,reopen,happened,did_not_happen,other_attempt,cannot_tell,explain,apply,once}', call),
		  array_position('{absent,claimed,free,submitted,unknown,completed,resolved,closed,applied}', state);

-- What the calls left behind: they change what they say, and nothing else.
SELECT bag_eq($$
	SELECT a.state, a.call, a.told, l.state::text AS now, l.ending, l.held, l.attempt - CASE a.state WHEN 'absent' THEN 0 ELSE 2 END
	  FROM answer a JOIN effect.ledger l ON l.effect_key = a.key
	  LEFT JOIN before b ON b.effect_key = a.key
	 WHERE (l.state, l.ending, l.held, l.attempt, l.fencing_token, l.job_key, l.response, l.reason) IS DISTINCT FROM
		   (b.state, b.ending, b.held, b.attempt, b.fencing_token, b.job_key, b.response, b.reason)
	   AND a.bound = 'alone'$$, $$VALUES
	('absent', 'claim', 'reserved', 'claimed', NULL, true, 1),
	('free', 'claim', 'reserved', 'claimed', NULL, true, 1),
	('absent', 'begin', 'go_after_commit', 'submitted', NULL, true, 1),
	('free', 'begin', 'go_after_commit', 'submitted', NULL, true, 1),
	('claimed', 'submit', 'go_after_commit', 'submitted', NULL, true, 0),
	('free', 'submit', 'go_after_commit', 'submitted', NULL, true, 1),
	('submitted', 'complete', 'done', 'done', 'completed', false, 0),
	('unknown', 'complete', 'done', 'done', 'completed', false, 0),
	('claimed', 'retract', 'reserved', 'claimed', NULL, false, 0),
	('submitted', 'retract', 'reserved', 'claimed', NULL, false, 0),
	('submitted', 'mark_unknown', 'unknown', 'unknown', NULL, true, 0),
	('submitted', 'operator_unknown', 'unknown', 'unknown', NULL, true, 0),
	('claimed', 'close', 'closed', 'done', 'closed', false, 0),
	('free', 'close', 'closed', 'done', 'closed', false, 0),
	('completed', 'reopen', 'unknown', 'unknown', NULL, false, 0),
	('resolved', 'reopen', 'unknown', 'unknown', NULL, false, 0),
	('closed', 'reopen', 'unknown', 'unknown', NULL, false, 0),
	('unknown', 'happened', 'done', 'done', 'resolved', false, 0),
	('unknown', 'did_not_happen', 'claimed', 'claimed', NULL, false, 0),
	('absent', 'apply', 'apply', 'done', 'applied', false, 1),
	('absent', 'once', 'true', 'done', 'applied', false, 1)$$,
	'without a job: the steps that were taken, and no other row has changed');
SELECT bag_eq($$
	SELECT a.state, a.call, a.whose, a.told, l.state::text AS now, l.ending, l.held, l.job_key, l.fencing_token, l.attempt - CASE a.state WHEN 'absent' THEN 0 ELSE 2 END
	  FROM answer a JOIN effect.ledger l ON l.effect_key = a.key
	  LEFT JOIN before b ON b.effect_key = a.key
	 WHERE (l.state, l.ending, l.held, l.attempt, l.fencing_token, l.job_key, l.response, l.reason) IS DISTINCT FROM
		   (b.state, b.ending, b.held, b.attempt, b.fencing_token, b.job_key, b.response, b.reason)
	   AND a.bound = 'job' AND a.call NOT IN ('apply', 'once')$$, $$VALUES
	('absent', 'claim', 'right', 'reserved', 'claimed', NULL, true, 'ledger/matrix', 2::bigint, 1),
	('absent', 'claim', 'foreign', 'reserved', 'claimed', NULL, true, 'ledger/elsewhere', 1, 1),
	('free', 'claim', 'right', 'reserved', 'claimed', NULL, true, 'ledger/matrix', 2, 1),
	('free', 'claim', 'foreign', 'reserved', 'claimed', NULL, true, 'ledger/elsewhere', 1, 1),
	('absent', 'begin', 'right', 'go_after_commit', 'submitted', NULL, true, 'ledger/matrix', 2, 1),
	('absent', 'begin', 'foreign', 'go_after_commit', 'submitted', NULL, true, 'ledger/elsewhere', 1, 1),
	('free', 'begin', 'right', 'go_after_commit', 'submitted', NULL, true, 'ledger/matrix', 2, 1),
	('free', 'begin', 'foreign', 'go_after_commit', 'submitted', NULL, true, 'ledger/elsewhere', 1, 1),
	('claimed', 'submit', 'right', 'go_after_commit', 'submitted', NULL, true, 'ledger/matrix', 2, 0),
	('free', 'submit', 'right', 'go_after_commit', 'submitted', NULL, true, 'ledger/matrix', 2, 1),
	('submitted', 'complete', 'right', 'done', 'done', 'completed', false, 'ledger/matrix', 2, 0),
	('unknown', 'complete', 'right', 'done', 'done', 'completed', false, 'ledger/matrix', 2, 0),
	('claimed', 'retract', 'right', 'reserved', 'claimed', NULL, false, 'ledger/matrix', 2, 0),
	('submitted', 'retract', 'right', 'reserved', 'claimed', NULL, false, 'ledger/matrix', 2, 0),
	('submitted', 'mark_unknown', 'right', 'unknown', 'unknown', NULL, true, 'ledger/matrix', 2, 0),
	('submitted', 'operator_unknown', 'right', 'unknown', 'unknown', NULL, true, 'ledger/matrix', 2, 0),
	('claimed', 'close', 'right', 'closed', 'done', 'closed', false, 'ledger/matrix', 2, 0),
	('free', 'close', 'right', 'closed', 'done', 'closed', false, 'ledger/matrix', 2, 0),
	('completed', 'reopen', 'right', 'unknown', 'unknown', NULL, false, 'ledger/matrix', 2, 0),
	('resolved', 'reopen', 'right', 'unknown', 'unknown', NULL, false, 'ledger/matrix', 2, 0),
	('closed', 'reopen', 'right', 'unknown', 'unknown', NULL, false, 'ledger/matrix', 2, 0),
	('unknown', 'happened', 'right', 'done', 'done', 'resolved', false, 'ledger/matrix', 2, 0),
	('unknown', 'did_not_happen', 'right', 'claimed', 'claimed', NULL, false, 'ledger/matrix', 2, 0)$$,
	'with a job: the steps that were taken, and no other row has changed');
SELECT bag_eq($$SELECT DISTINCT a.state, a.call, j.event FROM answer a JOIN effect.journal j ON j.effect_key = a.key
				 WHERE a.whose = 'stale' AND j.fencing_token = 1 AND j.attempt = 2 AND j.event LIKE 'late%'$$, $$VALUES
	('claimed', 'complete', 'late_answer'), ('free', 'complete', 'late_answer'), ('submitted', 'complete', 'late_answer'),
	('unknown', 'complete', 'late_answer'), ('completed', 'complete', 'late_answer'), ('resolved', 'complete', 'late_answer'),
	('closed', 'complete', 'late_answer'),
	('claimed', 'retract', 'late_retraction'), ('free', 'retract', 'late_retraction'), ('submitted', 'retract', 'late_retraction'),
	('unknown', 'retract', 'late_retraction'),
	('claimed', 'mark_unknown', 'late_doubt'), ('free', 'mark_unknown', 'late_doubt'), ('submitted', 'mark_unknown', 'late_doubt'),
	('unknown', 'mark_unknown', 'late_doubt')$$, 'whatever a superseded attempt said is in the journal');
SELECT is_empty($$SELECT u.effect_key FROM effect.unknown u JOIN effect.ledger l USING (effect_key) WHERE l.state <> 'unknown'
				  UNION ALL SELECT l.effect_key FROM effect.ledger l LEFT JOIN effect.unknown u USING (effect_key) WHERE l.state = 'unknown' AND u.effect_key IS NULL$$,
	'unknown rows stand beside unknown effects, and only there');

--
-- The matrix of policies: what a registration changes of an answer.
--
-- Effects without a job, one attempt each.  check is how an action that nobody
-- registered is treated; window: the far side still dedupes; past: it does so no
-- more; asks: one approval is required, and was given only where the state says
-- that it was submitted; event: identity target, and the call has other inputs
-- than were recorded.
--
CREATE TEMP TABLE policy (state text, call text, "check" text, resend text, "drop" text, "window" text, past text, asks text, event text);
COPY policy FROM stdin (DELIMITER ' ');
absent claim reserved reserved reserved reserved reserved reserved reserved
claimed claim busy busy busy busy busy busy mismatch
free claim reserved reserved reserved reserved reserved reserved mismatch
submitted claim busy busy busy busy busy busy mismatch
unknown claim unknown reserved unknown reserved unknown unknown mismatch
completed claim done done done done done done mismatch
resolved claim done done done done done done mismatch
closed claim closed closed closed closed closed closed mismatch
applied claim done done done done done done mismatch
absent begin go_after_commit go_after_commit go_after_commit go_after_commit go_after_commit unapproved go_after_commit
claimed begin busy busy busy busy busy busy mismatch
free begin go_after_commit go_after_commit go_after_commit go_after_commit go_after_commit unapproved mismatch
submitted begin busy busy busy busy busy busy mismatch
unknown begin unknown go_after_commit unknown go_after_commit unknown unknown mismatch
completed begin done done done done done done mismatch
resolved begin done done done done done done mismatch
closed begin closed closed closed closed closed closed mismatch
applied begin done done done done done done mismatch
absent submit LE003 LE003 LE003 LE003 LE003 LE003 LE003
claimed submit go_after_commit go_after_commit go_after_commit go_after_commit go_after_commit unapproved go_after_commit
free submit go_after_commit go_after_commit go_after_commit go_after_commit go_after_commit unapproved go_after_commit
submitted submit busy busy busy busy busy busy busy
unknown submit unknown unknown unknown unknown unknown unknown unknown
completed submit done done done done done done done
resolved submit done done done done done done done
closed submit closed closed closed closed closed closed closed
applied submit done done done done done done done
absent complete LE003 LE003 LE003 LE003 LE003 LE003 LE003
claimed complete LE004 LE004 LE004 LE004 LE004 LE004 LE004
free complete fenced fenced fenced fenced fenced fenced fenced
submitted complete done done done done done done done
unknown complete done done done done done done done
completed complete done done done done done done done
resolved complete done done done done done done done
closed complete closed closed closed closed closed closed closed
applied complete done done done done done done done
absent did_not_happen LE003 LE003 LE003 LE003 LE003 LE003 LE003
claimed did_not_happen LE004 LE004 LE004 LE004 LE004 LE004 LE004
free did_not_happen claimed claimed claimed claimed claimed claimed claimed
submitted did_not_happen LE010 LE010 LE010 LE010 LE010 LE010 LE010
unknown did_not_happen claimed claimed claimed claimed claimed claimed claimed
completed did_not_happen LE004 LE004 LE004 LE004 LE004 LE004 LE004
resolved did_not_happen LE004 LE004 LE004 LE004 LE004 LE004 LE004
closed did_not_happen LE004 LE004 LE004 LE004 LE004 LE004 LE004
applied did_not_happen LE004 LE004 LE004 LE004 LE004 LE004 LE004
absent explain reserved reserved reserved reserved reserved reserved reserved
claimed explain busy busy busy busy busy busy mismatch
free explain reserved reserved reserved reserved reserved reserved mismatch
submitted explain busy busy busy busy busy busy mismatch
unknown explain unknown reserved unknown reserved unknown unknown mismatch
completed explain done done done done done done mismatch
resolved explain done done done done done done mismatch
closed explain closed closed closed closed closed closed mismatch
applied explain done done done done done done mismatch
absent apply apply apply apply apply apply apply apply
claimed apply busy busy busy busy busy busy mismatch
free apply busy busy busy busy busy busy mismatch
submitted apply busy busy busy busy busy busy mismatch
unknown apply unknown unknown unknown unknown unknown unknown mismatch
completed apply done done done done done done mismatch
resolved apply done done done done done done mismatch
closed apply closed closed closed closed closed closed mismatch
applied apply done done done done done done mismatch
absent once true true true true true true true
claimed once LE004 LE004 LE004 LE004 LE004 LE004 LE004
free once LE004 LE004 LE004 LE004 LE004 LE004 LE004
submitted once LE004 LE004 LE004 LE004 LE004 LE004 LE004
unknown once LE004 LE004 LE004 LE004 LE004 LE004 LE004
completed once false false false false false false LE004
resolved once false false false false false false LE004
closed once false false false false false false LE004
applied once false false false false false false LE004
\.
SELECT effect.set_action('ledger/resend', on_unknown => 'resend'), effect.set_action('ledger/drop', on_unknown => 'drop'), effect.set_action('ledger/window', far_side_dedupes_for => '1 hour'),
	   effect.set_action('ledger/past', far_side_dedupes_for => '1 microsecond'), effect.set_action('ledger/asks', approvals_required => 1), effect.set_action('ledger/event', identity => 'target') \g /dev/null
CREATE TEMP TABLE kind AS
	SELECT p.state, p.call, w.n, w.kind, w.expected, 'ledger/' || w.kind AS action, format('%s %s', p.state, p.call) AS target,
		   effect.effect_key('ledger/' || w.kind, format('%s %s', p.state, p.call), effect.input_digest('{}')) AS key
	  FROM policy p CROSS JOIN LATERAL (VALUES (1, 'check', p."check"), (2, 'resend', resend), (3, 'drop', p."drop"), (4, 'window', p."window"), (5, 'past', past), (6, 'asks', asks), (7, 'event', event)) AS w (n, kind, expected);
CREATE TEMP TABLE step2 (answer text);
INSERT INTO step2 SELECT verdict FROM kind k, effect.claim_effect(k.action, k.target) WHERE k.state NOT IN ('absent', 'applied');
INSERT INTO step2 SELECT effect.approve(key, 'ann') FROM kind WHERE kind = 'asks' AND state IN ('submitted', 'unknown', 'completed', 'resolved');
INSERT INTO step2 SELECT verdict FROM kind k, effect.submit_effect(k.key, 1) WHERE k.state IN ('submitted', 'unknown', 'completed', 'resolved');
INSERT INTO step2 SELECT verdict FROM kind k, effect.retract_effect(k.key, 1) WHERE k.state = 'free';
INSERT INTO step2 SELECT verdict FROM kind k, effect.complete_effect(k.key, 1, '{"answer": 1}') WHERE k.state = 'completed';
INSERT INTO step2 SELECT verdict FROM kind k, effect.mark_unknown(k.key, 1, 'x') WHERE k.state IN ('unknown', 'resolved');
INSERT INTO step2 SELECT effect.resolve_unknown(key, 'happened') FROM kind WHERE state = 'resolved';
INSERT INTO step2 SELECT verdict FROM kind k, effect.close_effect(k.key, 'x') WHERE k.state = 'closed';
INSERT INTO step2 SELECT verdict FROM kind k, effect.apply_effect(k.action, k.target) WHERE k.state = 'applied';
SELECT bag_eq('SELECT DISTINCT answer FROM step2', $$VALUES ('reserved'), (''), ('go'), ('done'), ('unknown'), ('closed'), ('apply')$$, 'the effects of the matrix of policies are set up');
CREATE TEMP TABLE answer2 AS
	SELECT k.*, pg_temp.told(CASE
		WHEN call IN ('claim', 'begin', 'explain', 'apply') THEN format('SELECT verdict FROM effect.%s_effect(%L, %L, %L)', call, action, target, CASE kind WHEN 'event' THEN '{"n": 1}' ELSE '{}' END)
		WHEN call = 'once' THEN format('SELECT effect.once(%L, %L, %L)', action, target, CASE kind WHEN 'event' THEN '{"n": 1}' ELSE '{}' END)
		WHEN call = 'did_not_happen' THEN format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', key)
		ELSE format('SELECT verdict FROM effect.%s_effect(%L, 1)', call, key) END) AS told
	  FROM kind k;
SELECT is(string_agg(told, ' ' ORDER BY n), string_agg(expected, ' ' ORDER BY n), format('every policy: %s an effect that is %s', call, state))
  FROM answer2
 GROUP BY call, state
 ORDER BY array_position('{claim,begin,submit,complete,did_not_happen,explain,apply,once}', call), array_position('{absent,claimed,free,submitted,unknown,completed,resolved,closed,applied}', state);
SELECT is_empty($$SELECT a.kind, a.state, a.call FROM answer2 a JOIN effect.ledger l ON l.effect_key = a.key WHERE a.told = 'mismatch' AND (l.inputs <> '{}' OR l.attempt <> 1)$$, 'a mismatch touches nothing');
SELECT bag_eq($$SELECT a.kind, a.call, l.state::text, l.attempt, l.held FROM answer2 a JOIN effect.ledger l ON l.effect_key = a.key WHERE a.state = 'unknown' AND a.call IN ('claim', 'begin') AND l.attempt > 1$$,
	$$VALUES ('resend', 'claim', 'claimed', 2, true), ('resend', 'begin', 'submitted', 2, true), ('window', 'claim', 'claimed', 2, true), ('window', 'begin', 'submitted', 2, true)$$, 'resend and window make the next attempt at what is unknown, and no other policy does');
SELECT is_empty($$SELECT a.kind, a.state, a.call FROM answer2 a JOIN effect.approval p ON p.effect_key = a.key WHERE (p.consumed_attempt IS NOT NULL) <> (a.state IN ('submitted', 'unknown', 'completed', 'resolved'))$$, 'an approval is spent where something was submitted under it');

--
-- go, and go_after_commit
--
SELECT verdict, effect_key, fencing_token, state, attempt, coalesce(response::text, '-') AS response, coalesce(detail, '-') AS detail
  FROM effect.begin_effect('ledger/go', 'begin', '{"amount": 10}') \gset v_
SELECT is(:'v_verdict'::text, 'go', 'begin as a statement of its own: go');
SELECT is(:'v_effect_key'::uuid, effect.effect_key('ledger/go', 'begin', effect.input_digest('{"amount": 10}')), 'its key is the key of its facts');
SELECT is(format('%s %s %s %s %s', :'v_fencing_token', :'v_state', :'v_attempt', :'v_response', :'v_detail'), '1 submitted 1 - -', 'the first attempt''s row');
SELECT is((state, attempt, held, job_key, submitted_at IS NOT NULL, inputs)::text, '(submitted,1,t,,t,"{""amount"": 10}")', 'and as it is shown')
  FROM effect.effects WHERE effect_key = :'v_effect_key';
SELECT is(extract(epoch FROM busy_until - submitted_at)::int, 300, 'five minutes bound it') FROM effect.effects WHERE effect_key = :'v_effect_key';
SELECT verdict, effect_key FROM effect.claim_effect('ledger/go', 'submit') \gset v_
SELECT is(:'v_verdict'::text, 'reserved', 'claim never says go');
SELECT is(state::text, 'claimed', 'it is claimed') FROM effect.effects WHERE effect_key = :'v_effect_key';
SELECT verdict FROM effect.submit_effect(:'v_effect_key', 1) \gset v_
SELECT is(:'v_verdict'::text, 'go', 'submit as a statement of its own: go');
SELECT string_agg(verdict::text, ' ') AS verdict FROM effect.begin_effects('ledger/go', '{x,y}') \gset v_
SELECT is(:'v_verdict'::text, 'go go', 'begin_effects too');
PREPARE go(text) AS SELECT verdict FROM effect.begin_effect('ledger/go', $1);
EXECUTE go('prepared') \gset v_
SELECT is(:'v_verdict'::text, 'go', 'prepared: go');
CREATE TEMP TABLE kept AS SELECT * FROM effect.begin_effect('ledger/go', 'ctas');
SELECT is(verdict::text, 'go', 'CREATE TABLE AS: go') FROM kept;
SELECT effect.begin_effect('ledger/go', 'a select list')::text ~ '^\(go,' AS go \gset v_
SELECT ok(:'v_go', 'in a select list: go');
BEGIN;
SELECT verdict FROM effect.begin_effect('ledger/go', 'block') \gset v_
COMMIT;
SELECT is(:'v_verdict'::text, 'go_after_commit', 'in a block: go_after_commit');
BEGIN;
SAVEPOINT s;
SELECT verdict FROM effect.begin_effect('ledger/go', 'savepoint') \gset v_
COMMIT;
SELECT is(:'v_verdict'::text, 'go_after_commit', 'in a savepoint');
SELECT verdict FROM effect.begin_effect('ledger/go', 'two statements') \; SELECT 1 \g /dev/null
CREATE FUNCTION pg_temp.begin_plpgsql(target text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN RETURN (SELECT verdict FROM effect.begin_effect('ledger/go', target)); END $$;
CREATE FUNCTION pg_temp.begin_sql(target text) RETURNS text LANGUAGE sql VOLATILE AS $$
	INSERT INTO kept SELECT * FROM effect.begin_effect('ledger/go', target) RETURNING verdict::text $$;
CREATE PROCEDURE pg_temp.begin_procedure(target text) LANGUAGE plpgsql AS $$
BEGIN INSERT INTO kept SELECT * FROM effect.begin_effect('ledger/go', target); END $$;
SELECT is(pg_temp.begin_plpgsql('plpgsql'), 'go_after_commit', 'in a PL/pgSQL function');
SELECT is(pg_temp.begin_sql('sql'), 'go_after_commit', 'in an SQL function');
TRUNCATE kept;
CALL pg_temp.begin_procedure('procedure');
DO $$ BEGIN INSERT INTO kept SELECT * FROM effect.begin_effect('ledger/go', 'do'); END $$;
CREATE TEMP TABLE queue (target text);
CREATE FUNCTION pg_temp.begin_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO kept SELECT * FROM effect.begin_effect('ledger/go', new.target); RETURN new; END $$;
CREATE TRIGGER t AFTER INSERT ON queue FOR EACH ROW EXECUTE FUNCTION pg_temp.begin_trigger();
INSERT INTO queue VALUES ('trigger');
SELECT is(string_agg(verdict::text, ' '), 'go_after_commit go_after_commit go_after_commit', 'in a procedure, in DO, in a trigger') FROM kept;
SELECT is(count(*)::int, 1, 'all of them are in the ledger: the statements of one query are one transaction')
  FROM effect.effects WHERE action = 'ledger/go' AND target = 'two statements' AND state = 'submitted';

-- A record that rolled back is no evidence: the next is told go.
BEGIN;
SELECT verdict FROM effect.begin_effect('ledger/go', 'rolled back') \gset v_
ROLLBACK;
SELECT verdict, attempt FROM effect.begin_effect('ledger/go', 'rolled back') \gset v_
SELECT is(:'v_verdict' || ' ' || :'v_attempt', 'go 1', 'rolled back, it never was');

-- synchronous_commit = off is raised for the transaction, never lowered.
BEGIN;
SET LOCAL synchronous_commit = off;
SELECT verdict FROM effect.begin_effect('ledger/go', 'async') \gset v_
SELECT current_setting('synchronous_commit') AS setting \gset v_
COMMIT;
SELECT is(:'v_setting'::text, 'on', 'off is raised');
BEGIN;
SET LOCAL synchronous_commit = remote_apply;
SELECT verdict FROM effect.begin_effect('ledger/go', 'remote') \gset v_
SELECT current_setting('synchronous_commit') AS setting \gset v_
COMMIT;
SELECT is(:'v_setting'::text, 'remote_apply', 'remote_apply is not lowered');

--
-- Duplicates: a read, the recorded answer, no transaction id
--
SELECT effect_key AS key FROM effect.begin_effect('ledger/dup', 'x', '{"amount": 10}') \gset d_
SELECT is((verdict, fencing_token, state, attempt, response, detail)::text, '(done,1,done,1,"{""id"": ""ch_1""}",)', 'complete answers done')
  FROM effect.complete_effect(:'d_key', 1, '{"id": "ch_1"}');
SELECT is((verdict, effect_key, response)::text, format('(done,%s,"{""id"": ""ch_1""}")', :'d_key'), 'whoever asks again is given the answer')
  FROM effect.begin_effect('ledger/dup', 'x', '{"amount": 1e1}');
BEGIN;
SELECT string_agg(verdict::text, ' ') AS verdicts FROM (
	SELECT verdict FROM effect.begin_effect('ledger/dup', 'x', '{"amount": 10.0}') UNION ALL
	SELECT verdict FROM effect.claim_effect('ledger/dup', 'x', '{"amount": 10}') UNION ALL
	SELECT verdict FROM effect.begin_effects('ledger/dup', '{x}', '{"{\"amount\":10}"}') UNION ALL
	SELECT verdict FROM effect.explain_effect('ledger/dup', 'x', '{"amount": 10}') UNION ALL
	SELECT verdict FROM effect.apply_effect('ledger/dup', 'x', '{"amount": 10}')) s \gset v_
SELECT pg_current_xact_id_if_assigned() IS NULL AS lazy \gset v_
COMMIT;
SELECT is(:'v_verdicts'::text, 'done done done done done', 'claim, begin, batch, explain and apply all say done');
SELECT ok(:'v_lazy', 'and assign no transaction id');
SELECT is((verdict, response)::text, '(done,"{""id"": ""ch_1""}")', 'completing again is a no-op with the recorded answer') FROM effect.complete_effect(:'d_key', 1, '{"id": "other"}');
SELECT is((verdict, response)::text, '(done,"{""id"": ""ch_1""}")', 'without an answer too') FROM effect.complete_effect(:'d_key', 1);
SELECT is_empty(format('SELECT event FROM effect.journal WHERE effect_key = %L', :'d_key'), 'none of it is out of the ordinary');
SELECT is((verdict, attempt, effect_key = :'d_key')::text, '(reserved,1,f)', 'other facts are another effect') FROM effect.claim_effect('ledger/dup', 'x', '{"amount": 11}');

-- busy: who and until when, yours
SELECT effect_key AS key FROM effect.begin_effect('ledger/busy', 'x') \gset b_
SELECT is((verdict, fencing_token, state, attempt, response)::text, '(busy,,submitted,1,)', 'a live attempt: busy, no token')
  FROM effect.begin_effect('ledger/busy', 'x');
SELECT matches(detail, '^attempt 1 has it until \d', 'detail says until when') FROM effect.begin_effect('ledger/busy', 'x');
SELECT 1 FROM effect.claim_lease('ledger/busy', 'ann', '1 hour') \g /dev/null
SELECT 1 FROM effect.begin_effect('ledger/busy', 'job', '{}', 'ledger/busy', 1) \g /dev/null
SELECT matches(detail, '^run 1 of job "ledger/busy", held by ann until \d.*, has it$', 'of a run: who and until when') FROM effect.begin_effect('ledger/busy', 'job');
SELECT matches(detail, '^yours: submitted by you', 'asked by the run itself: yours') FROM effect.begin_effect('ledger/busy', 'job', '{}', 'ledger/busy', 1);
SELECT 1 FROM effect.claim_effect('ledger/busy', 'claimed', '{}', 'ledger/busy', 1) \g /dev/null
SELECT is((verdict, detail ~ '^yours: claimed by you')::text, '(busy,t)', 'claimed: yours too') FROM effect.claim_effect('ledger/busy', 'claimed', '{}', 'ledger/busy', 1);
SELECT matches(detail, '^yours', 'submitting twice: yours') FROM effect.submit_effect(:'b_key', 1);
BEGIN;
SELECT 1 FROM effect.begin_effect('ledger/busy', 'twice') \g /dev/null
SELECT is((verdict, detail ~ '^yours')::text, '(busy,t)', 'without a job: yours in the same transaction') FROM effect.begin_effect('ledger/busy', 'twice');
COMMIT;
SELECT is((verdict, detail ~ '^yours')::text, '(busy,f)', 'later nobody can know') FROM effect.begin_effect('ledger/busy', 'twice');
SELECT (effect.begin_effect('ledger/busy', 'star')).* \gset v_
SELECT is(:'v_verdict'::text, 'go', '(begin_effect(..)).* says go');
SELECT is(attempt, 1, 'and made one attempt') FROM effect.effects WHERE effect_key = :'v_effect_key';

-- nonce: in a later transaction only, for a minute
\set n '''00000000-0000-0000-0000-0000000000aa'''
\set m '''00000000-0000-0000-0000-0000000000bb'''
SELECT verdict, effect_key AS key FROM effect.begin_effect('ledger/nonce', 'x', nonce => :n) \gset n_
SELECT verdict || ' ' || fencing_token || ' ' || attempt AS told FROM effect.begin_effect('ledger/nonce', 'x', nonce => :n) \gset v_
SELECT is(:'v_told'::text, 'go 1 1', 'the same nonce gets the same go');
SELECT is(verdict::text, 'busy', 'another nonce does not') FROM effect.begin_effect('ledger/nonce', 'x', nonce => :m);
SELECT is(verdict::text, 'busy', 'no nonce does not') FROM effect.begin_effect('ledger/nonce', 'x');
SELECT is(verdict::text, 'busy', 'a claim is another call') FROM effect.claim_effect('ledger/nonce', 'x', nonce => :n);
BEGIN;
SELECT 1 FROM effect.begin_effect('ledger/nonce', 'block', nonce => :n) \g /dev/null
SELECT is(verdict::text, 'busy', 'not in the same transaction') FROM effect.begin_effect('ledger/nonce', 'block', nonce => :n);
COMMIT;
SELECT is(pg_temp.told($$SELECT verdict FROM effect.begin_effect('ledger/nonce', 'block', nonce => '00000000-0000-0000-0000-0000000000aa')$$), 'go_after_commit', 'in a function the replay says go_after_commit');
SELECT verdict, effect_key AS key FROM effect.claim_effect('ledger/nonce', 'claim', nonce => :n) \gset c_
SELECT is((verdict, fencing_token)::text, '(reserved,1)', 'a claim is replayed as reserved') FROM effect.claim_effect('ledger/nonce', 'claim', nonce => :n);
SELECT verdict FROM effect.submit_effect(:'c_key', 1, :m) \gset v_
SELECT verdict FROM effect.submit_effect(:'c_key', 1, :m) \gset v_
SELECT is(:'v_verdict'::text, 'go', 'a submit is replayed as go');
SELECT is(verdict::text, 'busy', 'the claim''s nonce is not the submit''s') FROM effect.submit_effect(:'c_key', 1, :n);
UPDATE effect.ledger SET updated_at = updated_at - interval '61 seconds' WHERE effect_key = :'n_key';
SELECT is(verdict::text, 'busy', 'after a minute the nonce is worth nothing') FROM effect.begin_effect('ledger/nonce', 'x', nonce => :n);
SELECT 1 FROM effect.retract_effect(:'c_key', 1) \g /dev/null
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('ledger/nonce', 'claim', nonce => :m) \gset v_
SELECT is(:'v_told'::text, 'go 2', 'after a retraction it is the next attempt');

--
-- Batches
--
SELECT bag_eq($$SELECT row_number() OVER (), verdict::text, attempt, target, detail ~ '^yours' FROM effect.begin_effects('ledger/batch', '{c,a,b,a}')$$,
	$$VALUES (1::bigint, 'go_after_commit', 1, 'c', NULL::boolean), (2, 'go_after_commit', 1, 'a', NULL), (3, 'go_after_commit', 1, 'b', NULL), (4, 'busy', 1, 'a', true)$$,
	'one row an element, in order; two equal lines are one effect');
SELECT bag_eq($$SELECT row_number() OVER (), verdict::text, target FROM effect.begin_effects('ledger/batch', '{a,a,d}', '{"{\"n\":1}","{\"n\":2}","{\"n\":1}"}')$$,
	$$VALUES (1::bigint, 'go_after_commit', 'a'), (2, 'go_after_commit', 'a'), (3, 'go_after_commit', 'd')$$, 'each with its own inputs');
SELECT is(count(*)::int, 6, 'six effects') FROM effect.effects WHERE action = 'ledger/batch';
SELECT 1 FROM effect.claim_lease('ledger/batch', 'w', '1 hour') \g /dev/null
SELECT bag_eq($$SELECT verdict::text, fencing_token, target FROM effect.begin_effects('ledger/batch', '{j1,j2}', NULL, 'ledger/batch', 1, 'run-7')$$,
	$$VALUES ('go_after_commit', 1::bigint, 'j1'), ('go_after_commit', 1, 'j2')$$, 'under a run');
SELECT bag_eq($$SELECT DISTINCT job_key, run_id FROM effect.effects WHERE target ~ '^j[12]$' AND action = 'ledger/batch'$$, $$VALUES ('ledger/batch', 'run-7')$$, 'which is recorded');
SELECT array_agg(effect_key) AS keys FROM effect.effects WHERE action = 'ledger/batch' AND target ~ '^j[12]$' \gset v_
SELECT bag_eq(format($$SELECT verdict::text, response FROM effect.complete_effects(%L, 1, '{"{\"n\":1}",NULL}')$$, :'v_keys'),
	$$VALUES ('done', '{"n": 1}'::jsonb), ('done', NULL)$$, 'complete_effects: an answer may be NULL');
SELECT is(string_agg(effect_key::text, ' '), (SELECT string_agg(k::text, ' ') FROM unnest(:'v_keys'::uuid[] || (:'v_keys'::uuid[])[1]) AS k), 'one row an element, in order, repeats too')
  FROM effect.complete_effects(:'v_keys'::uuid[] || (:'v_keys'::uuid[])[1], 1);
SELECT throws_ok(format($$SELECT * FROM effect.complete_effects(%L, 1, '{NULL}')$$, :'v_keys'), '22023', NULL, 'complete_effects: lengths differ');
SELECT throws_ok($$SELECT * FROM effect.complete_effects('{NULL}', 1)$$, '22004', NULL, 'complete_effects: a NULL key');
SELECT throws_ok($$SELECT * FROM effect.complete_effects('{}', 1)$$, '22023', NULL, 'complete_effects: nothing');
SELECT throws_ok($$SELECT * FROM effect.complete_effects(NULL, 1)$$, '22004', NULL, 'complete_effects: NULL');
SELECT throws_ok(format($$SELECT * FROM effect.complete_effects(%L::uuid[] || gen_random_uuid(), 1)$$, :'v_keys'), 'LE003', NULL, 'complete_effects: a key that is not here');
SELECT throws_ok($$SELECT * FROM effect.begin_effects('ledger/batch', '{a,b}', '{"{}"}')$$, '22023', NULL, 'begin_effects: lengths differ');
SELECT throws_ok($$SELECT * FROM effect.begin_effects('ledger/batch', '{a,NULL}')$$, '22004', NULL, 'begin_effects: a NULL target');
SELECT throws_ok($$SELECT * FROM effect.begin_effects('ledger/batch', '{a,""}')$$, '22023', NULL, 'begin_effects: a blank target');
SELECT throws_ok($$SELECT * FROM effect.begin_effects('ledger/batch', '{}')$$, '22023', NULL, 'begin_effects: nothing');
SELECT throws_ok($$SELECT * FROM effect.begin_effects('ledger/batch', '{{a},{b}}')$$, '22023', NULL, 'begin_effects: two dimensions');
SELECT throws_ok($$SELECT * FROM effect.begin_effects('ledger/batch', '{a}', '{NULL}')$$, '22004', NULL, 'begin_effects: NULL inputs');
SELECT throws_ok($$SELECT * FROM effect.begin_effects('ledger/batch', '{a}', '{"[]"}')$$, '22023', NULL, 'begin_effects: inputs that are no object');

--
-- The 8-argument forms, and what is recorded
--
SELECT 1 FROM effect.claim_lease('ledger/full', 'w', '1 hour') \g /dev/null
SELECT is((verdict, fencing_token, state, attempt)::text, '(reserved,1,claimed,1)', 'claim_effect with everything')
  FROM effect.claim_effect('ledger/full', 'acct-9', '{"amount": 10}', 'ledger/full', 1, 'Pay 10 EUR to Ann', 'row-17', '00000000-0000-0000-0000-000000000001');
SELECT is((job_key, run_id, fencing_token, terms_shown, inputs)::text, '(ledger/full,row-17,1,"Pay 10 EUR to Ann","{""amount"": 10}")', 'is recorded')
  FROM effect.effects WHERE action = 'ledger/full';
SELECT is(pg_temp.told($$SELECT (verdict, fencing_token) FROM effect.begin_effect(action => 'ledger/full', target => 'acct-10', inputs => '{}', job_key => 'ledger/full', fencing_token => 1, terms_shown => 't', run_id => 'r', nonce => NULL)$$), '(go_after_commit,1)', 'begin_effect with everything, by name');
SELECT throws_ok($$SELECT * FROM effect.begin_effect('ledger/full', 'x', '{}', 'ledger/full')$$, '22004', NULL, 'a job without its token');
SELECT throws_ok($$SELECT * FROM effect.begin_effect('ledger/full', 'x', '{}', NULL, 1)$$, '22004', NULL, 'a token without its job');
SELECT throws_ok($$SELECT * FROM effect.begin_effect('ledger/full', 'x', '{}', 'ledger/full', 2)$$, 'LE003', NULL, 'a token that was never committed');
SELECT throws_ok($$SELECT * FROM effect.begin_effect('ledger/full', 'x', '{}', 'ledger/nobody', 1)$$, 'LE003', NULL, 'a job that never had a lease');

--
-- The reading rule: submitted under a token that is not current is unknown
--
SELECT 1 FROM effect.claim_lease('ledger/rule', 'w1', '1 hour') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('ledger/rule', 'sent', '{}', 'ledger/rule', 1) \gset s_
SELECT effect_key AS key FROM effect.claim_effect('ledger/rule', 'claimed', '{}', 'ledger/rule', 1) \gset c_
SELECT is((state, held)::text, '(submitted,t)', 'submitted, held') FROM effect.effects WHERE effect_key = :'s_key';
UPDATE effect.lease SET lease_until = clock_timestamp() - interval '1 hour' WHERE job_key = 'ledger/rule';
SELECT is((state, held)::text, '(submitted,t)', 'expired but not taken, its holder may still answer') FROM effect.effects WHERE effect_key = :'s_key';
SELECT is(effect.release_lease('ledger/rule', 1), true, 'the run ends without an answer');
SELECT is((state, held, unknown_since IS NULL)::text, '(unknown,f,t)', 'it reads as unknown though nobody has written that down') FROM effect.effects WHERE effect_key = :'s_key';
SELECT is((SELECT state::text FROM effect.ledger WHERE effect_key = :'s_key'), 'submitted', 'nobody has');
SELECT is((verdict, state)::text, '(unknown,unknown)', 'explain says so') FROM effect.explain_effect('ledger/rule', 'sent');
SELECT is((verdict, state, fencing_token, attempt, detail ~ '^attempt 1 was submitted at .* look at the far side')::text, '(unknown,unknown,,1,t)', 'whoever asks is told unknown') FROM effect.begin_effect('ledger/rule', 'sent');
SELECT is((state, unknown_reason IS NOT NULL, checks)::text, '(unknown,t,0)', 'and the touch has written it down') FROM effect.effects WHERE effect_key = :'s_key';
SELECT is(count(*)::int, 1, 'in the journal too') FROM effect.journal WHERE effect_key = :'s_key' AND event = 'unknown';
SELECT is((state, held)::text, '(claimed,f)', 'what was only claimed is claimed, and held by nobody') FROM effect.effects WHERE effect_key = :'c_key';
SELECT is((verdict, attempt)::text, '(reserved,2)', 'so the next may take it: lease theft licenses a new attempt, never a re-send') FROM effect.claim_effect('ledger/rule', 'claimed');

-- Theft writes it down in its own transaction.
SELECT 1 FROM effect.claim_lease('ledger/theft', 'slow', '1 millisecond') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('ledger/theft', 'sent', '{}', 'ledger/theft', 1) \gset t_
SELECT pg_sleep(0.01) \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'stolen') FROM effect.claim_lease('ledger/theft', 'thief', '1 hour');
SELECT is((SELECT state::text FROM effect.ledger WHERE effect_key = :'t_key'), 'unknown', 'its submitted effect turned unknown with it');
SELECT matches(detail, '; 1 effect\(s\) turned unknown; ', 'the journal counts it') FROM effect.journal WHERE job_key = 'ledger/theft' AND event = 'stolen';
SELECT is((unknown_reason, checks)::text, '("the run was abandoned",0)', 'with its reason') FROM effect.effects WHERE effect_key = :'t_key';
SELECT is(verdict::text, 'unknown', 'the thief is not told go') FROM effect.begin_effect('ledger/theft', 'sent', '{}', 'ledger/theft', 2);
SELECT is((verdict, fencing_token, state)::text, '(fenced,,unknown)', 'the old run''s answer changes nothing') FROM effect.complete_effect(:'t_key', 1, '{"id": "late"}');
SELECT is((state, late_answer)::text, '(unknown,"{""id"": ""late""}")', 'but is shown beside the unknown effect') FROM effect.effects WHERE effect_key = :'t_key';
SELECT is((event, fencing_token, attempt, evidence)::text, '(late_answer,1,1,"{""id"": ""late""}")', 'and kept in the journal') FROM effect.journal WHERE effect_key = :'t_key' AND event = 'late_answer';
SELECT is(outcome::text, 'fenced', 'its run was slow, not dead') FROM effect.runs WHERE job_key = 'ledger/theft' AND fencing_token = 1;
SELECT is(verdict::text, 'fenced', 'asking to submit it again: fenced') FROM effect.submit_effect(:'t_key', 1);
SELECT is((verdict, detail)::text, '(fenced,"token 1 of job ""ledger/theft"" is superseded")', 'or to begin another') FROM effect.begin_effect('ledger/theft', 'other', '{}', 'ledger/theft', 1);
SELECT is_empty($$SELECT 1 FROM effect.effects WHERE action = 'ledger/theft' AND target = 'other'$$, 'which is not there');

-- Without a job the timeout is the lease.
SET effect.default_timeout = '20ms';
SELECT effect_key AS key FROM effect.begin_effect('ledger/timeout', 'sent') \gset s_
SELECT effect_key AS key FROM effect.claim_effect('ledger/timeout', 'claimed') \gset c_
RESET effect.default_timeout;
SELECT pg_sleep(0.03) \g /dev/null
SELECT is(state::text, 'unknown', 'submitted, and its time is up: unknown') FROM effect.effects WHERE effect_key = :'s_key';
SELECT is(verdict::text, 'unknown', 'the next attempt is told so') FROM effect.begin_effect('ledger/timeout', 'sent');
SELECT is((verdict, fencing_token, attempt)::text, '(reserved,2,2)', 'claimed, and its time is up: taken over, which counts as an attempt') FROM effect.claim_effect('ledger/timeout', 'claimed');
SELECT is((verdict, detail)::text, '(fenced,"token 1 is superseded")', 'the first claimer is fenced') FROM effect.submit_effect(:'c_key', 1);
SELECT is(pg_temp.told(format($$SELECT verdict FROM effect.complete_effect(%L, 1, '{"ok": true}')$$, :'s_key')), 'done', 'but an answer by the unknown effect''s own attempt counts');
SELECT is((state, ending, response, unknown_since IS NULL)::text, '(done,completed,"{""ok"": true}",t)', 'late is better than never') FROM effect.effects WHERE effect_key = :'s_key';

--
-- Takeovers: attempts and tokens of an effect that changes hands
--
SELECT 1 FROM effect.claim_lease('ledger/hands', 'a', '1 hour') \g /dev/null
SELECT effect.release_lease('ledger/hands', 1) \g /dev/null
SELECT 1 FROM effect.claim_lease('ledger/hands', 'b', '1 hour') \g /dev/null
SELECT effect.release_lease('ledger/hands', 2) \g /dev/null
SELECT 1 FROM effect.claim_lease('ledger/hands', 'c', '1 hour') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('ledger/hands', 'x', '{}', 'ledger/hands', 3) \gset h_
SELECT 1 FROM effect.retract_effect(:'h_key', 3, '{"why": "connection refused"}') \g /dev/null
SELECT is((event, fencing_token, evidence)::text, '(retracted,3,"{""why"": ""connection refused""}")', 'a retraction''s evidence is in the journal') FROM effect.journal WHERE effect_key = :'h_key';
SELECT is((verdict, attempt)::text, '(reserved,2)', 'then somebody without a job makes the next attempt') FROM effect.claim_effect('ledger/hands', 'x');
SELECT is(pg_temp.told(format($$SELECT verdict FROM effect.complete_effect(%L, 3, '{"id": "ch_old"}')$$, :'h_key')), 'fenced',
	'an answer under the first attempt''s token, 3, is fenced, not a stranger''s');
SELECT is((fencing_token, evidence)::text, '(3,"{""id"": ""ch_old""}")', 'and kept') FROM (SELECT 1) s LEFT JOIN effect.journal ON effect_key = :'h_key' AND event = 'late_answer';
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.complete_effect(%L, 99)', :'h_key')), 'LE003', 'a token above all it had is a stranger''s');

-- Tokens of two attempts may be one number: the job's and an attempt count, or two jobs'.
SELECT effect_key AS key FROM effect.begin_effect('ledger/hands', 'number', '{}', 'ledger/matrix', 2) \gset h_
SELECT 1 FROM effect.retract_effect(:'h_key', 2) \g /dev/null
SELECT fencing_token AS token FROM effect.begin_effect('ledger/hands', 'number') \gset h_
SELECT isnt(:h_token, 2, 'an attempt without a job is not given the number that the job''s attempt had');
SELECT isnt(pg_temp.told(format($$SELECT verdict FROM effect.complete_effect(%L, 2, '{"id": "ch_job"}')$$, :'h_key')), 'done', 'so that the job''s late answer is not taken for its own');
SELECT 1 FROM effect.claim_lease('ledger/job a', 'a', '1 hour') a, effect.claim_lease('ledger/job b', 'b', '1 hour') b \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('ledger/hands', 'jobs', '{}', 'ledger/job a', 1) \gset h_
SELECT effect.revoke_lease('ledger/job a', 'x') \g /dev/null
SELECT effect.resolve_unknown(:'h_key', 'did_not_happen', 1) \g /dev/null
SELECT verdict FROM effect.begin_effect('ledger/hands', 'jobs', '{}', 'ledger/job b', 1) \gset h_
SELECT 1 FROM effect.complete_effect(:'h_key', 1, '{"id": "ch_a"}') \g /dev/null
SELECT isnt(response, '{"id": "ch_a"}'::jsonb, 'job a''s answer, under its superseded token, is never recorded as that of job b''s attempt') FROM effect.effects WHERE effect_key = :'h_key';

-- Suspected double: an earlier attempt's answer for what another attempt did.
SELECT effect_key AS key FROM effect.claim_effect('ledger/double', 'x') \gset x_
SELECT 1 FROM effect.submit_effect(:'x_key', 1) \g /dev/null
SELECT 1 FROM effect.mark_unknown(:'x_key', 1, 'no answer') \g /dev/null
SELECT effect.resolve_unknown(:'x_key', 'did_not_happen', 1) \g /dev/null
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('ledger/double', 'x') \gset v_
SELECT is(:'v_told'::text, 'go 2', 'found not to have happened: one more attempt');
SELECT 1 FROM effect.complete_effect(:'x_key', 2, '{"id": "second"}') \g /dev/null
SELECT is((verdict, response, detail ~ '^suspected double')::text, '(done,"{""id"": ""second""}",t)', 'the first attempt''s answer after all: suspected double') FROM effect.complete_effect(:'x_key', 1, '{"id": "first"}');
SELECT is((fencing_token, detail ~ 'suspected double', evidence)::text, '(1,t,"{""id"": ""first""}")', 'its answer is in the journal') FROM effect.journal WHERE effect_key = :'x_key' AND event = 'late_answer';
SELECT is((state, response)::text, '(done,"{""id"": ""second""}")', 'the recorded answer stays') FROM effect.effects WHERE effect_key = :'x_key';

-- A closed effect keeps its reason, whatever comes late.
SELECT effect_key AS key FROM effect.claim_effect('ledger/closed', 'x') \gset x_
SELECT 1 FROM effect.retract_effect(:'x_key', 1) \g /dev/null
SELECT 1 FROM effect.claim_effect('ledger/closed', 'x') \g /dev/null
SELECT is((verdict, state, response, detail)::text, '(closed,done,"{""voided"": true}","customer left")', 'close answers closed, with reason and response') FROM effect.close_effect(:'x_key', 'customer left', '{"voided": true}');
SELECT is((verdict, response, detail)::text, '(closed,"{""voided"": true}","customer left")', 'the holder is told so at its submit') FROM effect.submit_effect(:'x_key', 2);
SELECT is((verdict, detail)::text, '(closed,"customer left")', 'and whoever asks later') FROM effect.begin_effect('ledger/closed', 'x');
SELECT is((verdict, detail)::text, '(closed,"customer left")', 'closing again keeps the first reason') FROM effect.close_effect(:'x_key', 'another');
SELECT is((event, detail, role_name = session_user)::text, '(closed,"customer left",t)', 'journalled with the role') FROM effect.journal WHERE effect_key = :'x_key' AND event = 'closed';
SELECT is((verdict, detail)::text, '(closed,"customer left")', 'the reason is in detail also for the late answer of an earlier attempt') FROM effect.complete_effect(:'x_key', 1, '{"id": 1}');
SELECT is((verdict, state)::text, '(unknown,unknown)', 'a closed effect may be reopened') FROM effect.reopen_effect(:'x_key', 'did it go out?');
SELECT unalike(detail, '%2000-01-01%', 'it was never submitted, and no moment of that is made up') FROM effect.explain_effect('ledger/closed', 'x');

-- Completing in the very transaction that submitted.
CREATE FUNCTION pg_temp.same_transaction(target text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	k uuid;
	answer text;
BEGIN
	SELECT effect_key INTO k FROM effect.begin_effect('ledger/same', target);
	SELECT verdict || ' ' || state INTO answer FROM effect.complete_effect(k, 1, '{"ok": 1}');
	RETURN answer;
END $$;
SET client_min_messages = error;
SELECT is(pg_temp.same_transaction('x'), 'done done', 'completed in the transaction that submitted it: done');
SET client_min_messages = warning;
SELECT is((state, ending, response)::text, '(done,completed,"{""ok"": 1}")', 'and stays done: evidence is not thrown away') FROM effect.effects WHERE action = 'ledger/same' AND target = 'x';
SELECT is(count(*)::int, 1, 'with a journal entry') FROM effect.journal WHERE effect_key = effect.effect_key('ledger/same', 'x', effect.input_digest('{}')) AND event = 'same_transaction';
-- the warning stands in the expected output
\set VERBOSITY terse
BEGIN;
SELECT effect_key AS key FROM effect.begin_effect('ledger/same', 'y') \gset y_
SELECT 1 FROM effect.complete_effect(:'y_key', 1) \g /dev/null
COMMIT;
BEGIN;
SELECT effect_key AS key FROM effect.claim_effect('ledger/same', 'z') \gset z_
SAVEPOINT s;
SELECT 1 FROM effect.submit_effect(:'z_key', 1) \g /dev/null
RELEASE s;
SELECT 1 FROM effect.complete_effect(:'z_key', 1) \g /dev/null
COMMIT;
\set VERBOSITY default
SELECT is(count(*)::int, 2, 'in savepoints too') FROM effect.journal WHERE effect_key IN (:'y_key', :'z_key') AND event = 'same_transaction';
SELECT effect_key AS key FROM effect.begin_effect('ledger/same', 'two') \gset a_
BEGIN;
SELECT 1 FROM effect.complete_effect(:'a_key', 1) \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('ledger/same', 'three') \gset b_
COMMIT;
SELECT is_empty(format($$SELECT 1 FROM effect.journal WHERE effect_key IN (%L, %L)$$, :'a_key', :'b_key'), 'complete n and begin n + 1 in one transaction is the normal way: no warning');

-- Mark unknown: by its holder, by an operator; done is not undone by it.
SELECT effect_key AS key FROM effect.begin_effect('ledger/doubt', 'x') \gset x_
SELECT is((verdict, state, fencing_token, detail)::text, '(unknown,unknown,,"timed out at 30 s")', 'the holder cannot say') FROM effect.mark_unknown(:'x_key', 1, 'timed out at 30 s');
SELECT is((unknown_reason, late_answer)::text, '("timed out at 30 s",)', 'with its reason') FROM effect.effects WHERE effect_key = :'x_key';
SELECT is(pg_temp.told(format($$SELECT verdict FROM effect.complete_effect(%L, 1, '{"ok": 1}')$$, :'x_key')), 'done', 'its own answer may still come');
SELECT is_empty(format('SELECT 1 FROM effect.unknown WHERE effect_key = %L', :'x_key'), 'then it is unknown no more');
SELECT is((verdict, state, response)::text, '(done,done,"{""ok"": 1}")', 'and doubting it changes nothing') FROM effect.mark_unknown(:'x_key', 1, 'really?');

-- A fence is registered: the attempt of a run that was superseded meanwhile commits nothing.
SELECT 1 FROM effect.claim_lease('ledger/fence', 'w', '1 hour') \g /dev/null
SELECT effect_key AS key FROM effect.claim_effect('ledger/fence', 'claimed', '{}', 'ledger/fence', 1) \gset f_
CREATE EXTENSION IF NOT EXISTS dblink;
SELECT dblink_connect('ledger', format('dbname=%s host=%s port=%s user=%s', current_database(),
	split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_user)) \g /dev/null
SELECT dblink_exec('ledger', 'BEGIN') \g /dev/null
SELECT is(verdict, 'go_after_commit', 'begun in a block') FROM dblink('ledger', $$SELECT verdict::text FROM effect.begin_effect('ledger/fence', 'begun', '{}', 'ledger/fence', 1)$$) AS t (verdict text);
SELECT is(verdict, 'go_after_commit', 'submitted in a block') FROM dblink('ledger', format($$SELECT verdict::text FROM effect.submit_effect(%L, 1)$$, :'f_key')) AS t (verdict text);
SELECT is(effect.revoke_lease('ledger/fence', 'test'), 1::bigint, 'the lease is revoked meanwhile');
SELECT throws_ok($$SELECT dblink_exec('ledger', 'COMMIT')$$, 'LE001', NULL, 'COMMIT fails: nothing may be sent');
SELECT is((SELECT string_agg(target || ' ' || state, ', ') FROM effect.effects WHERE action = 'ledger/fence'), 'claimed claimed', 'and no evidence of it is left');
SELECT fencing_token AS token FROM effect.claim_lease('ledger/fence', 'w', '1 hour') \gset f_
SELECT verdict FROM effect.begin_effect('ledger/fence', 'replayed', '{}', 'ledger/fence', :f_token, nonce => :n) \gset v_
SELECT is(:'v_verdict'::text, 'go', 'begun, and the answer is lost');
SELECT dblink_exec('ledger', 'ROLLBACK') \g /dev/null
SELECT dblink_exec('ledger', 'BEGIN') \g /dev/null
SELECT is(verdict, 'go_after_commit', 'asked again in a block with its nonce')
  FROM dblink('ledger', format($$SELECT verdict::text FROM effect.begin_effect('ledger/fence', 'replayed', '{}', 'ledger/fence', %s, nonce => '00000000-0000-0000-0000-0000000000aa')$$, :f_token)) AS t (verdict text);
SELECT is(effect.revoke_lease('ledger/fence', 'test'), :f_token::bigint, 'the lease is revoked meanwhile');
SELECT throws_ok($$SELECT dblink_exec('ledger', 'COMMIT')$$, 'LE001', NULL, 'a replay is fenced as the first call was');
SELECT dblink_disconnect('ledger') \g /dev/null

-- Case 26: no expected outcome aborts the caller's transaction.
CREATE TEMP TABLE orders (id int);
SELECT 1 FROM effect.claim_lease('ledger/26', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('ledger/26 old', 'w', '1 hour') \g /dev/null
SELECT effect.revoke_lease('ledger/26 old', 'x') \g /dev/null
BEGIN;
INSERT INTO orders VALUES (1);
SELECT verdict FROM effect.begin_effect('ledger/dup', 'x', '{"amount": 10}') \g /dev/null
SELECT verdict FROM effect.begin_effect('ledger/closed', 'x') \g /dev/null
SELECT verdict FROM effect.begin_effect('ledger/busy', 'x') \g /dev/null
SELECT verdict FROM effect.begin_effect('ledger/rule', 'sent') \g /dev/null
SELECT verdict FROM effect.begin_effect('ledger/26', 'x', '{}', 'ledger/26 old', 1) \g /dev/null
SELECT verdict FROM effect.complete_effect(:'t_key', 1) \g /dev/null
SELECT verdict FROM effect.claim_lease('ledger/26', 'other', '1 hour') \g /dev/null
SELECT effect.release_lease('ledger/26 old', 1), effect.renew_lease('ledger/26 old', 1), effect.is_current('ledger/26 old', 1) \g /dev/null
SELECT effect.once('ledger/dup', 'x', '{"amount": 10}') \g /dev/null
INSERT INTO orders VALUES (2);
COMMIT;
SELECT is(count(*)::int, 2, 'done, closed, busy, unknown, fenced, held: the transaction is usable and commits') FROM orders;

-- A read-only transaction: only explain.
BEGIN READ ONLY;
SELECT is(verdict::text, 'done', 'explain_effect works READ ONLY') FROM effect.explain_effect('ledger/dup', 'x', '{"amount": 10}');
SELECT throws_ok($$SELECT * FROM effect.begin_effect('ledger/dup', 'x', '{"amount": 10}')$$, '25006', NULL, 'the others are refused');
COMMIT;

SELECT * FROM finish();
