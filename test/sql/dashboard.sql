\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- dashboard: the page stands with no rows and with thousands, says in words what
-- is empty, lets nothing through unescaped, and is for monitors.
SET client_min_messages = error;
SET lock_timeout = '20s';	-- a test may fail, never hang
SET TimeZone = 'UTC';
DROP EXTENSION IF EXISTS effect CASCADE;
CREATE EXTENSION effect;
DROP ROLE IF EXISTS effect_dash_monitor, effect_dash_operator, effect_dash_worker, effect_dash_nobody;
CREATE ROLE effect_dash_monitor;
CREATE ROLE effect_dash_operator;
CREATE ROLE effect_dash_worker;
CREATE ROLE effect_dash_nobody;
SELECT effect.grant_monitor('effect_dash_monitor'), effect.grant_operator('effect_dash_operator'), effect.grant_worker('effect_dash_worker') \g /dev/null

SELECT plan(76);

CREATE FUNCTION pg_temp.has(page text, part text, what text) RETURNS text LANGUAGE sql AS $$
	SELECT ok(position(part IN page) > 0, what) $$;
CREATE FUNCTION pg_temp.hasnt(page text, part text, what text) RETURNS text LANGUAGE sql AS $$
	SELECT ok(position(part IN page) = 0, what) $$;
CREATE FUNCTION pg_temp.times(page text, part text) RETURNS integer LANGUAGE sql AS $$
	SELECT (length(page) - length(replace(page, part, ''))) / length(part) $$;
-- The page from this heading on to the next one.
CREATE FUNCTION pg_temp.section(page text, id text) RETURNS text LANGUAGE sql AS $$
	SELECT substr(page, position('<section id="' || id || '"' IN page), position('</section>' IN substr(page, position('<section id="' || id || '"' IN page)))) $$;

-- escape_html
SELECT is(effect.escape_html($$<a href="x" b='y'>&amp;$$), '&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;', 'what HTML gives a meaning is escaped, once');
SELECT is(effect.escape_html(NULL), NULL::text, 'NULL stays NULL');
SELECT is(effect.escape_html(''), '', 'and nothing nothing');
SELECT is(effect.escape_html(E'a\x01b\x1b[0m\x7f'), 'a&#xFFFD;b&#xFFFD;[0m&#xFFFD;', 'control characters are made harmless');
SELECT is(effect.escape_html(E'a\tb\nc'), E'a\tb\nc', 'tab and newline are white space');
SELECT is(effect.escape_html(E'a\u202eb\u2066c\u2069d\u200be\ufefff\u2028g\u0085h'), 'a&#xFFFD;b&#xFFFD;c&#xFFFD;d&#xFFFD;e&#xFFFD;f&#xFFFD;g&#xFFFD;h', 'so are overrides, isolates and what cannot be seen');
SELECT is(effect.escape_html(E'\U0001f469\u200d\U0001f467 \u05d0 \u0627 \u00e9 \u65e5'), E'\U0001f469\u200d\U0001f467 \u05d0 \u0627 \u00e9 \u65e5', 'letters, joiners and emoji stay');
SELECT is(effect.escape_html('\ %s %1$s \1 \&'), '\ %s %1$s \1 \&amp;', 'backslashes and percent signs stay');

-- names, spans, times
SELECT is(effect.dashboard_name('a<b'), '<bdi>a&lt;b</bdi>', 'a name stands in a bdi');
SELECT is(effect.dashboard_name(repeat('n', 100)), '<bdi>' || repeat('n', 100) || '</bdi>', '100 characters are shown');
SELECT is(effect.dashboard_name(repeat('<', 101)), '<bdi title="' || repeat('&lt;', 101) || '">' || repeat('&lt;', 90) || '&hellip;</bdi>', 'more are cut, and stand whole in the title');
SELECT is(effect.dashboard_name(''), '<i>all other names</i>', 'the name of those that were not counted apart');
SELECT is(effect.dashboard_span(s::interval), w, 'a span: ' || s)
  FROM (VALUES ('0', '0 ms'), ('0.1234 s', '123 ms'), ('1 s', '1 s'), ('9.96 s', '9.9 s'), ('59.9 s', '59 s'), ('60 s', '1 min'), ('61 s', '1 min 1 s'),
			   ('3600 s', '1 h'), ('25:10', '1 d 1 h'), ('24:10', '1 d'), ('-90 s', '1 min 30 s'), ('1 month', '30 d')) AS v(s, w);
SELECT matches(effect.dashboard_time(clock_timestamp() - interval '2 hours 5 minutes 1 second'),
	'^<time datetime="\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00" title="\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC">2 h 5 min ago</time>$', 'a time that has been');
SELECT matches(effect.dashboard_time(clock_timestamp() + interval '90.5 seconds'), '>in 1 min 30 s</time>$', 'a time to come');
SELECT matches(effect.dashboard_time(clock_timestamp()), '>now</time>$', 'and this moment');
SELECT is(effect.dashboard_time('-infinity'), '-infinity', 'a time that never was');
SELECT is(effect.dashboard_number(1234567), '1,234,567', 'a count');
SELECT is(effect.dashboard_more(0, 'x') || effect.dashboard_more(-3, 'x'), '', 'nothing is left out');
SELECT is(effect.dashboard_more(1200, 'SELECT 1;'), '<p class="more">and 1,200 more: <code>SELECT 1;</code></p>', 'or so much');

-- The empty page
SELECT effect.dashboard() AS empty \gset
SELECT matches(:'empty'::text, '^<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">', 'it is a page');
SELECT matches(:'empty'::text, '</body></html>\s*$', 'to its end');
SELECT pg_temp.has(:'empty', '<title>effect: ' || effect.escape_html(current_database()) || '</title>', 'with a title');
SELECT matches(:'empty'::text, 'written <b>\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</b> \(UTC\)', 'the time of writing and its zone');
SELECT pg_temp.has(:'empty', 'PostgreSQL ' || current_setting('server_version') || ', effect ' || (SELECT extversion FROM pg_extension WHERE extname = 'effect'), 'and versions');
SELECT pg_temp.has(:'empty', '<meta name="viewport" content="width=device-width', 'it is made for a phone, too');
SELECT pg_temp.has(:'empty', 'prefers-color-scheme: dark', 'and for the night');
SELECT pg_temp.has(:'empty', s, 'empty: ' || s)
  FROM unnest(ARRAY['sweep has never run', 'No job has ever been claimed here.', 'No effect is open', 'Nothing has been counted for any job yet.',
	'Nothing has been counted for any action yet.', 'No run has come to its end yet.']) AS s;
SELECT doesnt_match(:'empty'::text, '<script|javascript:|https?://|@import|url\(|\son\w+=', 'nothing in it runs or comes from elsewhere');
SELECT pg_temp.has(:'empty', $$default-src 'none'$$, 'and its policy would not let it');
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT matches(effect.dashboard(), '<p class="verdict tag fine">Nothing is wrong now</p>\n<p class="facts"><span>sweep ran <time', 'all is well');

-- Something of everything
SELECT effect.set_job('d/slow', every => '1 minute', overlap => 'coalesce', lease_for => '30 seconds') \g /dev/null
SELECT effect.set_action('d/dropped', on_unknown => 'drop'), effect.set_action('d/pay', resolver => '') \g /dev/null
SELECT 1 FROM effect.claim_lease('d/slow', 'host-1') \g /dev/null
SELECT 1 FROM effect.release_lease('d/slow', 1) \g /dev/null
SELECT 1 FROM effect.claim_lease('d/held', 'host-2', '1 hour', firing => '2026-11-29'), generate_series(1, 3) \g /dev/null
SELECT 1 FROM effect.claim_lease('d/late', 'host-3', '1 microsecond') \g /dev/null
SELECT 1 FROM effect.begin_effect('d/pay', 'in-flight', '{"secret": "terces"}', 'd/held', 1, 'terms-shown') \g /dev/null
SELECT 1 FROM unnest('{d/pay,d/dropped}'::text[]) AS a, effect.begin_effect(a, 'lost', '{"secret": "terces"}') \g /dev/null
SELECT 1 FROM effect.ledger l, effect.mark_unknown(l.effect_key, 1, 'read <timeout>') WHERE l.target = 'lost' \g /dev/null
SELECT 1 FROM effect.claim_effect('d/pay', 'claimed') \g /dev/null
SET session_replication_role = replica;
UPDATE effect.run SET started_at = ended_at - interval '2 minutes' WHERE job_key = 'd/slow';
UPDATE effect.ledger SET submitted_at = submitted_at - interval '3 hours' WHERE target = 'lost';
UPDATE effect.unknown SET since = since - interval '3 hours';
INSERT INTO effect.counter VALUES ('action', 'd/pay', 'duplicates', date_trunc('hour', clock_timestamp(), 'UTC') - interval '2 hours', 1234),
	('action', 'd/pay', 'duplicates', date_trunc('hour', clock_timestamp(), 'UTC') - interval '30 hours', 1000), ('action', 'd/pay', 'duplicates', '-infinity', 10000),
	('job', 'd/slow', 'fenced', '-infinity', 7), ('job', '', 'granted', date_trunc('hour', clock_timestamp(), 'UTC'), 3);
RESET session_replication_role;
SET ROLE effect_dash_monitor;
SELECT effect.dashboard() AS page \gset
SELECT pass('a monitor may read it');
SELECT matches(:'page'::text, '<p class="verdict tag critical">1 critical, \d warning', 'what is wrong stands on top');
SELECT matches(pg_temp.section(:'page', 'attention'), 'card critical.*?<bdi>d/pay</bdi>.*?3 h ago.*?<code class="step">SELECT \* FROM effect.unknown_effects WHERE action = &#39;d/pay&#39;;</code>', 'with whom, since when, and the next step');
SELECT matches(pg_temp.section(:'page', 'leases'), '1 live, 1 expired, 1 free; 0 firings waiting.*d/late.*expired.*host-3.*d/held.*live.*host-2.*2026-11-29.*in 59 min.*d/slow.*free.*nobody', 'leases: expired, live, free');
SELECT matches(pg_temp.section(:'page', 'effects'), '1 unknown, 1 submitted, 1 claimed.*d/pay.*unknown.*lost.*3 h ago.*read &lt;timeout&gt;.*submitted.*in-flight.*d/held.*claimed.*dropped', 'effects: unknown first, dropped last');
SELECT matches(pg_temp.section(:'page', 'counters'), '<bdi>d/pay</bdi>.*data-l="duplicates"><b>1,234</b><svg[^>]*><path d="M10[05] 24v-22.0h4v22.0z"/></svg><span class="sub">12,234 in all</span>', 'counters: the last day by the hour, and since ever');
SELECT matches(pg_temp.section(:'page', 'counters'), '<bdi>d/slow</bdi></td>.*data-l="fenced"><b>0</b><svg[^>]*><path d=""/></svg><span class="sub">7 in all', 'what moved long ago is there without a column');
SELECT pg_temp.has(pg_temp.section(:'page', 'counters'), '<i>all other names</i>', 'and the names not counted apart');
SELECT matches(pg_temp.section(:'page', 'runs'), '<bdi>d/slow</bdi>.*2 min.*30 s.*1 min.*p99 over interval, p99 over lease', 'run times against interval and lease');
SELECT doesnt_match(:'page'::text, 'terces|terms-shown', 'no bodies');
RESET ROLE;
SET ROLE effect_dash_operator;
SELECT doesnt_match(effect.dashboard(), 'terces|terms-shown', 'not even for those who may read them');
RESET ROLE;
SET ROLE effect_dash_worker;
SELECT throws_ok('SELECT effect.dashboard()', '42501', NULL, 'a worker may not');
RESET ROLE;
SET ROLE effect_dash_nobody;
SELECT throws_ok('SELECT effect.dashboard()', '42501', NULL, 'nor may anybody else');
RESET ROLE;
GRANT USAGE ON SCHEMA effect TO effect_dash_nobody;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA effect TO effect_dash_nobody;
SET ROLE effect_dash_nobody;
SELECT throws_ok('SELECT effect.dashboard()', '42501', NULL, 'and it reads with the rights of who calls it');
RESET ROLE;

-- Names that would be markup
CREATE TEMP TABLE hostile AS SELECT * FROM unnest(ARRAY['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', '</style><style>*{display:none}', $$' onclick='alert(1)$$,
	E'\u202eright\u202c', E'e\u0007\u001b[31m', '%s %1$s \1', repeat('l', 200)]) AS name;
SELECT 1 FROM hostile, effect.claim_lease(name, name, '1 hour', firing => name) \g /dev/null
SELECT 1 FROM hostile, effect.begin_effect(name, name) \g /dev/null
SELECT 1 FROM (SELECT l.* FROM effect.ledger l JOIN hostile h ON h.name = l.action OFFSET 0) AS l, effect.mark_unknown(l.effect_key, 1, l.action) \g /dev/null
SELECT effect.dashboard() AS page \gset
SELECT is(pg_temp.times(lower(:'page'), part), n, 'as often as it is ours: ' || what)
  FROM (VALUES ('<script', 0, '<script'), ('<img', 0, '<img'), ('<style', 1, '<style'), ('</style', 1, '</style'), (' onerror=alert(1)>', 0, 'onerror'),
			   (''' onclick', 0, 'onclick'), (E'\u202e', 0, 'an override'), (E'\u001b', 0, 'an escape')) AS v(part, n, what);
SELECT pg_temp.has(:'page', '<bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>', 'what is escaped is there');
SELECT is(pg_temp.times(:'page', '<bdi'), pg_temp.times(:'page', '</bdi>'), 'every bdi ends');

-- Thousands, with the longest names, all of which must be escaped
SET session_replication_role = replica;
INSERT INTO effect.lease (job_key, owner, fencing_token, lease_until, lease_for, firing, granted_at)
SELECT 'd' || g || repeat('"', 240), repeat('<', 255), 1, clock_timestamp() + interval '1 hour', '1 hour', repeat('&', 255), clock_timestamp() FROM generate_series(1, 1500) AS g;
INSERT INTO effect.run (job_key, fencing_token, owner, outcome, started_at, ended_at, role_name)
SELECT 'd' || g || repeat('"', 240), 1, 'o', 'finished', clock_timestamp() - interval '1 minute', clock_timestamp(), 'r' FROM generate_series(1, 1500) AS g;
INSERT INTO effect.counter SELECT k, 'd' || g || repeat('"', 240), c, date_trunc('hour', clock_timestamp(), 'UTC') - h * interval '1 hour', g
  FROM (VALUES ('job', 'granted'), ('job', 'fenced'), ('action', 'go'), ('action', 'duplicates')) AS v(k, c), generate_series(1, 100) AS g, generate_series(0, 23) AS h;
INSERT INTO effect.ledger (effect_key, action, target, inputs_digest, fencing_token, attempt, state, held, created_at, submitted_at, updated_at, busy_until)
SELECT gen_random_uuid(), 'd' || repeat('''', 250), g || repeat('"', 1000), 'x', 1, 1, 'submitted', true, clock_timestamp(), clock_timestamp(), clock_timestamp(), '-infinity' FROM generate_series(1, 2000) AS g;
RESET session_replication_role;
ANALYZE effect.lease, effect.run, effect.counter, effect.ledger;
SELECT effect.dashboard() AS page \gset
SELECT cmp_ok(octet_length(:'page'), '<', 1000000, 'the page stays below 1 MB');
SELECT matches(pg_temp.section(:'page', 'leases'), 'and 1,4\d\d more: <code>SELECT \* FROM effect.leases;</code>', 'and says what it leaves out: leases');
SELECT matches(pg_temp.section(:'page', 'effects'), 'and 1,9\d\d more: <code>SELECT \* FROM effect.open_effects ORDER BY since;</code>', 'effects');
SELECT matches(pg_temp.section(:'page', 'runs'), 'and 1,\d\d\d more: <code>SELECT \* FROM effect.job_stats;</code>', 'runs');
SELECT is(pg_temp.times(pg_temp.section(:'page', 'effects'), '<tr>'), 51, '50 effects and a heading');

SELECT * FROM finish();
DROP EXTENSION effect CASCADE;
CREATE EXTENSION effect;
REASSIGN OWNED BY effect_dash_monitor, effect_dash_operator, effect_dash_worker, effect_dash_nobody TO CURRENT_USER;
DROP OWNED BY effect_dash_monitor, effect_dash_operator, effect_dash_worker, effect_dash_nobody;
DROP ROLE effect_dash_monitor, effect_dash_operator, effect_dash_worker, effect_dash_nobody;
