\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- cluster: epochs, quarantine, and who this place is (doc/cluster.md).  It moves
-- the epoch, so it begins and ends with an extension that is new.  Promotions
-- and restores are in the TAP tests; here the row that says where we were is
-- changed by hand, and a new session finds it different.
SET client_min_messages = warning;
SET lock_timeout = '20s';
DROP EXTENSION IF EXISTS effect CASCADE;
CREATE EXTENSION effect;
CREATE EXTENSION IF NOT EXISTS dblink;
SET effect.default_settle = 0;

SELECT plan(125);

CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION pg_temp.key(action text, target text) RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key(action, target, effect.input_digest('{}')) $$;
-- What another session is told; a new one with these settings, where they are named.
SELECT format('dbname=%s host=%s port=%s user=%s', current_database(), split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_user) AS place \gset
SELECT set_config('cluster.place', :'place', false) \g /dev/null
CREATE FUNCTION pg_temp.elsewhere(sql text, settings text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM dblink_connect('new', current_setting('cluster.place') || CASE WHEN settings <> '' THEN format(' options=%L', settings) ELSE '' END);
	SELECT a INTO answer FROM dblink('new', sql) AS t (a text);
	PERFORM dblink_disconnect('new');
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	PERFORM dblink_disconnect('new');
	RETURN SQLSTATE;
END $$;
SELECT dblink_connect('open', :'place') \g /dev/null
CREATE FUNCTION pg_temp.open(sql text) RETURNS text LANGUAGE sql AS $$ SELECT a FROM dblink('open', sql) AS t (a text) $$;

--
-- The row, and epochs by hand
--
SELECT is_empty('SELECT 1 FROM effect.cluster', 'no row before the first use');
SELECT 1 FROM effect.claim_lease('cluster/a', 'w', '1 hour') \g /dev/null
SELECT is((epoch, site, timeline > 0, database_oid = (SELECT oid FROM pg_database WHERE datname = current_database()), table_oid = 'effect.cluster'::regclass, quarantined_since)::text, '(0,"",t,t,t,)', 'the first use writes where we are') FROM effect.cluster;
SELECT is(system_identifier, (SELECT system_identifier FROM pg_control_system()), 'in which cluster') FROM effect.cluster;
SELECT is(fencing_token, 1::bigint, 'tokens are 1, 2, 3 where nothing ever moved') FROM effect.leases WHERE job_key = 'cluster/a';
SELECT is(pg_temp.open($$SELECT verdict FROM effect.claim_lease('cluster/b', 'w', '1 hour')$$), 'granted', 'another session');
SELECT effect_key AS key FROM effect.begin_effect('cluster', 'bound', '{}', 'cluster/a', 1) \gset b_
SELECT effect.bump_epochs() AS epoch \gset
SELECT is(:epoch >= (extract(epoch FROM clock_timestamp() - '2026-01-01 00:00:00+00') / 60)::bigint - 2, true, 'bump_epochs: at least the minutes since 2026');
SELECT is(epoch, :epoch::bigint, 'is written') FROM effect.cluster;
SELECT is((count(*), count(owner))::text, '(2,0)', 'every lease is freed') FROM effect.leases WHERE job_key LIKE 'cluster/%';
SELECT is(string_agg(outcome::text, ' '), 'revoked revoked', 'every run revoked') FROM effect.runs WHERE job_key LIKE 'cluster/%';
SELECT is(state::text, 'unknown', 'what was in flight is unknown') FROM effect.effects WHERE effect_key = :'b_key';
SELECT is(effect.renew_lease('cluster/a', 1), NULL, 'the holder is fenced');
SELECT is(fencing_token, (:epoch::bigint << 24) + 1, 'the next token is the epoch''s first') FROM effect.claim_lease('cluster/a', 'w', '1 hour');
SELECT is(fencing_token, (:epoch::bigint << 24) + 1, 'for every job') FROM effect.claim_lease('cluster/b', 'w', '1 hour');
SELECT is(effect.bump_epochs(), :epoch::bigint + 1, 'within a minute: one higher');
SELECT is((event, detail)::text, format('(epoch_bumped,"epoch %s: every lease is freed")', :epoch), 'journalled') FROM (SELECT * FROM effect.journal WHERE event = 'epoch_bumped' ORDER BY id LIMIT 1) j;

--
-- Quarantine by hand: the verdicts.  before: without it, on the same effects.
--
SELECT effect.set_action('cluster/event', identity => 'target') \g /dev/null
SELECT effect.set_action('cluster/asked', approvals_required => 1) \g /dev/null
SELECT effect.set_action('cluster/mail', on_unknown => 'resend') \g /dev/null
CREATE TEMP TABLE expected (state text, call text, before text, quarantined text);
COPY expected FROM stdin (DELIMITER ' ');
absent claim reserved quarantined
claimed claim busy quarantined
free claim reserved quarantined
submitted claim busy quarantined
unknown claim unknown quarantined
done claim done done
closed claim closed closed
mismatch claim mismatch mismatch
fenced claim fenced quarantined
absent begin go_after_commit quarantined
claimed begin busy quarantined
free begin go_after_commit quarantined
submitted begin busy quarantined
unknown begin unknown quarantined
resendable begin go_after_commit quarantined
unapproved begin unapproved quarantined
done begin done done
closed begin closed closed
mismatch begin mismatch mismatch
fenced begin fenced quarantined
absent explain reserved quarantined
free explain reserved quarantined
done explain done done
mismatch explain mismatch mismatch
claimed submit go_after_commit quarantined
free submit go_after_commit quarantined
submitted submit busy quarantined
unknown submit unknown quarantined
stale submit fenced quarantined
done submit done done
closed submit closed closed
submitted complete done done
unknown complete done done
stale complete fenced fenced
submitted retract reserved reserved
submitted mark unknown unknown
claimed close closed closed
done reopen unknown unknown
unknown happened done done
unknown did_not_happen claimed claimed
unknown cannot_tell unknown unknown
absent apply apply apply
done apply done done
absent once true true
\.
-- Two effects a line, one asked before and one during the quarantine.
SELECT 1 FROM effect.claim_lease('cluster/fenced', 'w', '1 hour') \g /dev/null
SELECT fencing_token AS old FROM effect.leases WHERE job_key = 'cluster/fenced' \gset
SELECT effect.revoke_lease('cluster/fenced', 'x') \g /dev/null
CREATE TEMP TABLE line AS
	SELECT e.*, w.during, CASE WHEN state = 'mismatch' THEN 'cluster/event' WHEN state = 'unapproved' THEN 'cluster/asked' WHEN state = 'resendable' THEN 'cluster/mail' ELSE 'cluster' END AS action,
		   format('%s %s %s', state, call, w.during) AS target
	  FROM expected e CROSS JOIN (VALUES (false), (true)) AS w (during);
ALTER TABLE line ADD key uuid, ADD token bigint DEFAULT 1;
UPDATE line SET key = pg_temp.key(action, target);
SELECT 1 FROM line l, effect.claim_effect(action, target) WHERE l.state NOT IN ('absent', 'fenced', 'unapproved') \g /dev/null
SELECT 1 FROM line l, effect.submit_effect(key, 1) WHERE l.state IN ('submitted', 'unknown', 'resendable', 'done') \g /dev/null
SELECT 1 FROM line l, effect.mark_unknown(key, 1, 'x') WHERE l.state IN ('unknown', 'resendable') \g /dev/null
SELECT 1 FROM line l, effect.complete_effect(key, 1, '{}') WHERE l.state = 'done' \g /dev/null
SELECT 1 FROM line l, effect.retract_effect(key, 1) WHERE l.state IN ('free', 'stale') \g /dev/null
SELECT 1 FROM line l, effect.claim_effect(action, target) WHERE l.state = 'stale' \g /dev/null
SELECT 1 FROM line l, effect.close_effect(key, 'x') WHERE l.state = 'closed' \g /dev/null
CREATE FUNCTION pg_temp.ask(l line, old bigint) RETURNS text LANGUAGE sql AS $$
	SELECT pg_temp.told(CASE
		WHEN l.call IN ('claim', 'begin') THEN format('SELECT verdict FROM effect.%s_effect(%L, %L, %L%s)', l.call, l.action, l.target, CASE l.state WHEN 'mismatch' THEN '{"n": 1}' ELSE '{}' END,
			CASE l.state WHEN 'fenced' THEN format(', ''cluster/fenced'', %s', old) ELSE '' END)
		WHEN l.call = 'explain' THEN format('SELECT verdict FROM effect.explain_effect(%L, %L, %L)', l.action, l.target, CASE l.state WHEN 'mismatch' THEN '{"n": 1}' ELSE '{}' END)
		WHEN l.call IN ('submit', 'complete', 'retract') THEN format('SELECT verdict FROM effect.%s_effect(%L, 1)', l.call, l.key)
		WHEN l.call = 'mark' THEN format('SELECT verdict FROM effect.mark_unknown(%L, 1, ''x'')', l.key)
		WHEN l.call IN ('close', 'reopen') THEN format('SELECT verdict FROM effect.%s_effect(%L, ''x'')', l.call, l.key)
		WHEN l.call = 'apply' THEN format('SELECT verdict FROM effect.apply_effect(%L, %L)', l.action, l.target)
		WHEN l.call = 'once' THEN format('SELECT effect.once(%L, %L)', l.action, l.target)
		ELSE format('SELECT effect.resolve_unknown(%L, %L, 1)', l.key, l.call) END) $$;
CREATE TEMP TABLE answer AS SELECT l.state, l.call, l.during, pg_temp.ask(l, :old) AS told FROM line l WHERE NOT during;
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/1')$$), 'go', 'another session, which has looked where it is');
SELECT dblink_exec('open', 'BEGIN') \g /dev/null
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/2')$$), 'go_after_commit', 'and is in the middle of a transaction');
SELECT lives_ok($$SELECT effect.quarantine('cloned for a test')$$, 'quarantine');
INSERT INTO answer SELECT l.state, l.call, l.during, pg_temp.ask(l, :old) FROM line l WHERE during;
SELECT is((SELECT told FROM answer a WHERE a.state = e.state AND a.call = e.call AND NOT during) || ' ' || (SELECT told FROM answer a WHERE a.state = e.state AND a.call = e.call AND during),
		  e.before || ' ' || e.quarantined, format('%s: %s, before a quarantine and during it', e.call, e.state))
  FROM expected e;
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/3')$$), 'quarantined', 'the open transaction is told with its next call');
SELECT dblink_exec('open', 'COMMIT') \g /dev/null
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/4')$$), 'quarantined', 'and the next one');
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'open/5')$$), 'quarantined', 'and new sessions');
SELECT is((verdict, fencing_token, state, detail)::text, '(quarantined,,,"nothing is sent from here until effect.adopt_cluster()")', 'the row says what to do') FROM effect.begin_effect('cluster', 'open/6');
SELECT is(string_agg(verdict::text, ' '), 'quarantined quarantined', 'begin_effects') FROM effect.begin_effects('cluster', '{b1,b2}');
SELECT is(pg_temp.told($$SELECT string_agg(t, ' ') FROM effect.once('cluster', '{o1,o2}'::text[]) t$$), 'o1 o2', 'inside effects go on');
-- leases
SELECT is((verdict, fencing_token)::text, '(quarantined,)', 'claim_lease') FROM effect.claim_lease('cluster/new', 'w', '1 hour');
SELECT is((verdict, fencing_token)::text, '(quarantined,)', 'of a job that was here before') FROM effect.claim_lease('cluster/a', 'w', '1 hour');
SELECT is((job_key, verdict, fencing_token)::text, '(,quarantined,)', 'claim_any') FROM effect.claim_any('{cluster/a,cluster/new}', 'w', '1 hour');
SELECT is_empty($$SELECT 1 FROM effect.leases WHERE job_key = 'cluster/new'$$, 'and nothing of it is written');
-- operators
SELECT throws_ok('SELECT effect.bump_epochs()', 'LE011', NULL, 'bump_epochs: LE011, adopt_cluster takes this step');
SELECT is((SELECT s::text FROM effect.sweep() s) IS NOT NULL, true, 'sweep goes on');
SELECT is((quarantined_since IS NOT NULL, quarantine_reason)::text, '(t,"cloned for a test")', 'since when, and why') FROM effect.cluster;
SELECT is((event, detail, role_name = session_user)::text, '(quarantined,"cloned for a test",t)', 'journalled with the role') FROM effect.journal WHERE event = 'quarantined';
SELECT lives_ok($$SELECT effect.quarantine('once more')$$, 'quarantined twice');
SELECT is(quarantine_reason, 'once more', 'the latest reason stands') FROM effect.cluster;
SELECT is(pg_temp.told('SELECT effect.quarantine(' || s || ')'), want, format('quarantine(%s): %s', s, want)) FROM (VALUES ('NULL', '22004'), (''' ''', '22023'), ('repeat(''x'', 2001)', '22023')) AS t (s, want);
BEGIN READ ONLY;
SELECT throws_ok($$SELECT effect.quarantine('x')$$, '25006', NULL, 'READ ONLY: quarantine');
SELECT throws_ok($$SELECT effect.adopt_cluster()$$, '25006', NULL, 'READ ONLY: adopt_cluster');
SELECT is(verdict::text, 'quarantined', 'explain works READ ONLY') FROM effect.explain_effect('cluster', 'open/6');
COMMIT;
-- a quarantine that rolls back never was
SELECT effect.adopt_cluster() AS epoch2 \gset
SELECT is(:epoch2 > :epoch + 1, true, 'adopt_cluster starts a new epoch');
SELECT is((quarantined_since, quarantine_reason)::text, '(,)', 'and ends the quarantine') FROM effect.cluster;
SELECT is(event, 'adopted', 'journalled') FROM effect.journal WHERE event = 'adopted';
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/7')$$), 'go', 'other sessions go on');
SELECT verdict FROM effect.begin_effect('cluster', 'open/6') \gset v_
SELECT is(:'v_verdict'::text, 'go', 'and so do we');
SELECT is(fencing_token, (:epoch2::bigint << 24) + 1, 'with tokens of the new epoch') FROM effect.claim_lease('cluster/a', 'w', '1 hour');
BEGIN;
SELECT effect.quarantine('x') \g /dev/null
SELECT is(verdict::text, 'quarantined', 'in its own transaction it counts at once') FROM effect.begin_effect('cluster', 'rolled back');
ROLLBACK;
SELECT is(pg_temp.told($$SELECT verdict FROM effect.begin_effect('cluster', 'rolled back')$$), 'go_after_commit', 'a quarantine that rolled back never was');
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/8')$$), 'go', 'for nobody');

--
-- Another place: what a session finds when it first writes
--
SELECT fencing_token AS token FROM effect.leases WHERE job_key = 'cluster/a' \gset
SELECT effect_key AS key FROM effect.begin_effect('cluster', 'alone') \gset g_
SELECT effect_key AS key FROM effect.claim_effect('cluster', 'alone, claimed') \gset c_
SELECT effect_key AS key FROM effect.begin_effect('cluster', 'in flight', '{}', 'cluster/a', :token) \gset f_
UPDATE effect.cluster SET timeline = timeline + 1;
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'promoted/1')$$), 'go', 'a promotion, trusted: it goes on');
SELECT is((epoch > :epoch2, quarantined_since)::text, '(t,)', 'in a new epoch') FROM effect.cluster;
SELECT is(state::text, 'unknown', 'what was in flight is unknown') FROM effect.effects WHERE effect_key = :'f_key';
SELECT is(string_agg(target || ' ' || state, ', ' ORDER BY target), 'alone unknown, alone, claimed claimed', 'also what is its own lease') FROM effect.effects WHERE effect_key IN (:'g_key', :'c_key');
SELECT is(verdict::text, 'unknown', 'as whoever asks is told') FROM effect.begin_effect('cluster', 'alone');
SELECT is(attempt, 2, 'a claimed one may be claimed again') FROM effect.claim_effect('cluster', 'alone, claimed');
SELECT is(effect.renew_lease('cluster/a', :token), NULL, 'every lease is freed');
UPDATE effect.cluster SET timeline = timeline + 1;
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'promoted/2')$$, '-c effect.after_failover=quarantine'), 'quarantined', 'effect.after_failover = quarantine: it waits');
SELECT is(quarantine_reason, 'promoted, recovered or restored: ledger rows may be lost', 'and says why') FROM effect.cluster;
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/9')$$), 'quarantined', 'a session that had looked before is told too');
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'promoted/3')$$), 'quarantined', 'also under trust, until somebody adopts it');
SELECT effect.adopt_cluster() \g /dev/null
UPDATE effect.cluster SET system_identifier = system_identifier + 1;
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'restored/1')$$), 'quarantined', 'another cluster: quarantined, whatever after_failover says');
SELECT is(quarantine_reason, 'restored, cloned, or configured for another site', 'it says why') FROM effect.cluster;
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.claim_lease('cluster/a', 'w', '1 hour')$$), 'quarantined', 'leases too');
SELECT effect.adopt_cluster() \g /dev/null
UPDATE effect.cluster SET database_oid = 1;
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'template/1')$$), 'quarantined', 'another database: a template copy');
SELECT effect.adopt_cluster() \g /dev/null
UPDATE effect.cluster SET table_oid = 1;
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'restored/2')$$), 'go', 'restored into the database it came from: a new epoch');
SELECT is((SELECT string_agg(event || CASE WHEN detail ~ 'quarantined' THEN ' quarantined' ELSE '' END, ', ' ORDER BY id) FROM effect.journal WHERE event = 'moved'), 'moved, moved quarantined, moved quarantined, moved quarantined, moved', 'each step is journalled');

-- effect.site
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'site/1')$$, '-c effect.site=berlin'), 'quarantined', 'a clone whose configuration says another site: quarantined');
SELECT is((site, quarantine_reason)::text, '(berlin,"restored, cloned, or configured for another site")', 'the row says which') FROM effect.cluster;
SELECT is(pg_temp.open($$SELECT verdict FROM effect.begin_effect('cluster', 'open/10')$$), 'quarantined', 'whoever looked before is told');
SELECT is(pg_temp.elsewhere('SELECT effect.adopt_cluster() > 0', '-c effect.site=berlin'), 't', 'adopted as that site');
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'site/2')$$, '-c effect.site=berlin'), 'go', 'it goes there');
SELECT is(pg_temp.elsewhere($$SELECT verdict FROM effect.begin_effect('cluster', 'site/3')$$), 'quarantined', 'and nowhere else');
SELECT is(string_agg(name || ' ' || context || ' "' || boot_val || '"', ', ' ORDER BY name), 'effect.after_failover superuser "trust", effect.site superuser ""', 'both settings are for superusers to set')
  FROM pg_settings WHERE name IN ('effect.site', 'effect.after_failover');
SELECT effect.adopt_cluster() \g /dev/null
DROP ROLE IF EXISTS effect_cluster_worker;
CREATE ROLE effect_cluster_worker;
SELECT effect.grant_worker('effect_cluster_worker') \g /dev/null
SET ROLE effect_cluster_worker;
SELECT is(pg_temp.told(s), '42501', 'a worker may not: ' || s) FROM unnest(ARRAY['SET effect.site = ''x''', 'SET effect.after_failover = trust', 'SELECT effect.quarantine(''x'')', 'SELECT effect.adopt_cluster()', 'SELECT effect.bump_epochs()']) AS s;
RESET ROLE;

-- the row is guarded
SELECT is(pg_temp.told(s), 'LE012', 'by plain SQL: ' || s) FROM unnest(ARRAY['UPDATE effect.cluster SET epoch = 0', 'DELETE FROM effect.cluster', 'TRUNCATE effect.cluster']) AS s;

SELECT dblink_disconnect('open') \g /dev/null
SELECT * FROM finish();
DROP OWNED BY effect_cluster_worker;
DROP ROLE effect_cluster_worker;
DROP EXTENSION effect CASCADE;
CREATE EXTENSION effect;
