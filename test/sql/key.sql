\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- key: canonical text, digests, effect keys and facts (doc/key.md).
-- Run from the top directory: test/vectors/ is read from there.
-- Random documents: psql -v seed=0.7 gives others.
\if :{?seed}
\else
	\set seed 0.42
\endif

-- Other encodings come first, since pgTAP forgets its plan on reconnecting.
\set home :DBNAME
CREATE DATABASE effect_key_latin1 TEMPLATE template0 LOCALE_PROVIDER libc ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE effect_key_ascii TEMPLATE template0 LOCALE_PROVIDER libc ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';
\connect effect_key_latin1
CREATE EXTENSION effect;
SELECT effect.input_digest('{"z":1,"Caf\u00e9":"\u00df"}') AS latin1_digest,
	   encode(effect.canonical_json('{"z":1,"Caf\u00e9":"\u00df"}')::bytea, 'hex') AS latin1_text,
	   effect.effect_key('mail', 'Caf' || chr(233), 'c') AS latin1_key,
	   effect.input_digest(effect.facts('Caf' || chr(233), chr(223), 'z', 1)) AS latin1_facts \gset
\connect effect_key_ascii
CREATE EXTENSION effect;
CREATE FUNCTION pg_temp.state(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE query;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT effect.input_digest(('{"z":1,"Caf' || E'\xc3\xa9' || '":"' || E'\xc3\x9f' || '"}')::jsonb) AS ascii_digest,
	   effect.effect_key('mail', E'Caf\xc3\xa9', 'c') AS ascii_key,
	   pg_temp.state($$SELECT effect.input_digest(('{"a":"' || E'\xe9' || '"}')::jsonb)$$) AS ascii_value,
	   pg_temp.state($$SELECT effect.input_digest(('{"' || E'\xe9' || '":1}')::jsonb)$$) AS ascii_name,
	   pg_temp.state($$SELECT effect.effect_key('mail', E'\xe9', 'c')$$) AS ascii_target \gset
\connect :home
DROP DATABASE effect_key_latin1;
DROP DATABASE effect_key_ascii;

BEGIN;
SET LOCAL client_encoding = 'UTF8';
SELECT plan(186);

-- What the labels promise.
SELECT is(count(*)::int, 5, 'five functions, immutable, parallel safe, not strict, with a comment')
  FROM pg_proc
 WHERE pronamespace = 'effect'::regnamespace
   AND proname IN ('canonical_json', 'input_digest', 'effect_key', 'facts')
   AND provolatile = 'i' AND proparallel = 's' AND NOT proisstrict AND NOT prosecdef
   AND obj_description(oid, 'pg_proc') IS NOT NULL;

-- The vectors, whose bytes never change.
CREATE TEMP TABLE vector (file text, n int GENERATED ALWAYS AS IDENTITY, line text, v jsonb GENERATED ALWAYS AS (line::jsonb) STORED);
ALTER TABLE vector ALTER file SET DEFAULT 'canonical';
\copy vector (line) FROM 'test/vectors/canonical.jsonl' WITH (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')
ALTER TABLE vector ALTER file SET DEFAULT 'key';
\copy vector (line) FROM 'test/vectors/key.jsonl' WITH (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')

SELECT ok(count(*) FILTER (WHERE file = 'canonical') >= 105 AND count(*) FILTER (WHERE file = 'key') >= 20, 'the vectors are all there') FROM vector;
SELECT is_empty($$
	SELECT n, v FROM vector
	 WHERE file = 'canonical' AND effect.canonical_json((v->>'document')::jsonb) IS DISTINCT FROM v->>'canonical'
	$$, 'canonical.jsonl: text');
SELECT is_empty($$
	SELECT n, v FROM vector
	 WHERE file = 'canonical' AND effect.input_digest((v->>'document')::jsonb) IS DISTINCT FROM v->>'digest'
	$$, 'canonical.jsonl: digest');
SELECT is_empty($$
	SELECT n, v FROM vector
	 WHERE file = 'canonical' AND encode(sha256(convert_to(v->>'canonical', 'UTF8')), 'hex') IS DISTINCT FROM v->>'digest'
	$$, 'canonical.jsonl: the digest is sha256 of the text in UTF-8');
SELECT is_empty($$
	SELECT n, v FROM vector
	 WHERE file = 'canonical' AND effect.canonical_json((v->>'canonical')::jsonb) IS DISTINCT FROM v->>'canonical'
	$$, 'canonical.jsonl: the canonical text is its own canonical text');
SELECT is_empty($$
	SELECT n, v FROM vector
	 WHERE file = 'key' AND effect.effect_key(v->>'action', v->>'target', v->>'digest') IS DISTINCT FROM (v->>'key')::uuid
	$$, 'key.jsonl: key');
SELECT is_empty($$
	SELECT n, v FROM vector
	 WHERE file = 'key' AND left(encode(sha256(convert_to(v->>'message', 'UTF8')), 'hex'), 32)::uuid IS DISTINCT FROM (v->>'key')::uuid
	$$, 'key.jsonl: the key is the first 128 bits of sha256 of the message');
SELECT is(count(DISTINCT v->>'key'), count(*), 'key.jsonl: no two parts share a key') FROM vector WHERE file = 'key';

-- One number, one digest; two numbers, two digests.
CREATE FUNCTION pg_temp.digests(VARIADIC documents text[]) RETURNS int LANGUAGE sql AS
	$$SELECT count(DISTINCT effect.input_digest(d::jsonb))::int FROM unnest(documents) d$$;
SELECT is(pg_temp.digests('{"amount":1}', '{"amount":1.0}', '{"amount":1.00}', '{"amount":1e0}', '{"amount":10e-1}'), 1, '1, 1.0, 1e0 are one amount');
SELECT is(pg_temp.digests('{"amount":0}', '{"amount":-0}', '{"amount":0.0}', '{"amount":-0.0}'), 1, '0 and -0 are one amount');
SELECT is(pg_temp.digests('{"amount":100}', '{"amount":1e2}', '{"amount":1E+2}', '{"amount":100.000}'), 1, '100 and 1e2 are one amount');
SELECT is(pg_temp.digests('{"p":0.000001}', '{"p":1e-6}', '{"p":1.0e-06}'), 1, '0.000001 and 1e-6 are one amount');
SELECT is(pg_temp.digests('0.1', '0.10000000000000001', '0.100000000000000005551115123125783'), 3, 'digits beyond a double count');
SELECT is(pg_temp.digests('{"id":9007199254740992}', '{"id":9007199254740993}'), 2, '2^53 and 2^53 + 1 are two ids');
SELECT is(pg_temp.digests('{"id":18446744073709551615}', '{"id":18446744073709551614}'), 2, '64-bit ids stay apart');
SELECT is(pg_temp.digests('{"id":9007199254740993}', '{"id":9007199254740993.0}'), 1, 'and a trailing zero changes none');
SELECT is(pg_temp.digests('{"id":295147905179352825856}', '{"id":295147905179352830000}'), 2, '2^68 is not what a double prints for it');
SELECT is(effect.canonical_json('{"9007199254740992":1,"9007199254740993":2}'), '{"9007199254740992":1,"9007199254740993":2}', 'names that look like numbers are names');
SELECT is(length(effect.canonical_json('1e400')), 6, '1e400 is short');
SELECT is(effect.canonical_json('1e131071'), '1e+131071', 'and so is the largest exponent jsonb has');

-- Order of members never matters, order of elements always.
SELECT is(pg_temp.digests('{"data":{"b":1,"aa":2},"id":"7"}', '{"id":"7","data":{"aa":2,"b":1}}', '{ "id" : "7" , "data" : { "aa" : 2 , "b" : 1 } }'), 1, 'member order and blanks do not matter');
SELECT is(effect.input_digest('{ "id" : "7" , "data" : { "aa" : 2 , "b" : 1 } }'::json::jsonb), effect.input_digest('{"data":{"b":1,"aa":2},"id":"7"}'), 'from json as from jsonb');
SELECT is(effect.input_digest('{ "id" : "7" , "data" : { "aa" : 2 , "b" : 1 } }'::text::jsonb), effect.input_digest('{"data":{"b":1,"aa":2},"id":"7"}'), 'from text as from jsonb');
SELECT is(pg_temp.digests('{"stops":["A","B"]}', '{"stops":["B","A"]}'), 2, 'the order of stops matters');
SELECT is(pg_temp.digests('[{"to":"x","amt":1},{"to":"y","amt":2}]', '[{"amt":1,"to":"x"},{"amt":2,"to":"y"}]'), 1, 'objects in an array are sorted inside');
SELECT is(pg_temp.digests('["a","a"]', '["a"]'), 2, 'an element given twice counts twice');
SELECT is(pg_temp.digests('[[1,2],[3]]', '[[1],[2,3]]'), 2, 'structure is not flattened');
SELECT is(pg_temp.digests('[]', '{}', '[[]]', '[{}]', 'null', '""', '0', 'false'), 8, 'empty things differ');

-- Unicode is taken as it comes.
SELECT is(pg_temp.digests('{"to":"Caf\u00e9"}', '{"to":"Cafe\u0301"}'), 2, 'NFC and NFD are two values');
SELECT is(effect.canonical_json('{"Caf\u00e9":1,"Cafe\u0301":2}')::jsonb, '{"Caf\u00e9":1,"Cafe\u0301":2}', 'and two members, none dropped');
SELECT is(pg_temp.digests('"\u00c5"', '"\u212b"', '"A\u030a"', '"\ud55c"', '"\u1112\u1161\u11ab"'), 5, 'no canonical equivalence');
SELECT is(pg_temp.digests('"\ufb01"', '"fi"', '"\u2460"', '"1"', '"\u0130"', '"i"', '"\u00df"', '"ss"', '"A@x.org"', '"a@x.org"'), 10, 'no compatibility and no case folding');
SELECT isnt(effect.effect_key('mail', U&'Caf\00e9', 'c'), effect.effect_key('mail', U&'Cafe\0301', 'c'), 'the same for targets');
SELECT isnt(effect.effect_key(U&'Caf\00e9', 't', 'c'), effect.effect_key(U&'Cafe\0301', 't', 'c'), 'the same for actions');

-- Other encodings, from the databases above.
SELECT is(:'latin1_digest'::text, effect.input_digest('{"z":1,"Caf\u00e9":"\u00df"}'), 'LATIN1: the digest is that of UTF-8');
SELECT is(:'latin1_facts'::text, :'latin1_digest'::text, 'LATIN1: facts');
SELECT is(convert_from(decode(:'latin1_text', 'hex'), 'LATIN1'), effect.canonical_json('{"z":1,"Caf\u00e9":"\u00df"}'), 'LATIN1: the canonical text is in the encoding of the database');
SELECT is(:'latin1_key'::text, effect.effect_key('mail', U&'Caf\00e9', 'c')::text, 'LATIN1: the key');
SELECT is(:'ascii_digest'::text, effect.input_digest('{"z":1,"Caf\u00e9":"\u00df"}'), 'SQL_ASCII: bytes are taken for UTF-8');
SELECT is(:'ascii_key'::text, effect.effect_key('mail', U&'Caf\00e9', 'c')::text, 'SQL_ASCII: the key');
SELECT is(:'ascii_value'::text, '22021'::text, 'SQL_ASCII: a value that is not UTF-8 is refused');
SELECT is(:'ascii_name'::text, '22021'::text, 'SQL_ASCII: a name that is not UTF-8 is refused');
SELECT is(:'ascii_target'::text, '22021'::text, 'SQL_ASCII: a target that is not UTF-8 is refused');

-- Only the fields that are named.
SELECT is(effect.input_digest('{"amount":100,"ccy":"EUR","attempt":"a1","enc":"x9"}', 'amount', 'ccy'),
		  effect.input_digest('{"amount":100.00,"ccy":"EUR","attempt":"a2","enc":"q7"}', 'amount', 'ccy'), 'fields: what is not named does not count');
SELECT isnt(effect.input_digest('{"amount":101,"ccy":"EUR"}', 'amount', 'ccy'),
			effect.input_digest('{"amount":100,"ccy":"EUR"}', 'amount', 'ccy'), 'fields: what is named does');
SELECT is(effect.input_digest('{"amount":100,"ccy":"EUR","attempt":"a1"}', 'ccy', 'amount', 'ccy'),
		  effect.input_digest('{"ccy":"EUR","amount":100}'), 'fields: order and repetition do not matter');
SELECT is(effect.input_digest('{"\ue000":1,"\ud83d\ude00":2,"z":3}', VARIADIC ARRAY[U&'\e000', U&'\+01F600']),
		  effect.input_digest('{"\ue000":1,"\ud83d\ude00":2}'), 'fields: sorted as a document is');
SELECT isnt(effect.input_digest('{"a":null}', 'a'), effect.input_digest('{}'), 'fields: a JSON null is there');
SELECT throws_ok($$SELECT effect.input_digest('{"amount":1,"ccy":"EUR"}', 'amount', 'currency')$$, '2203A', 'inputs have no member "currency"', 'fields: a missing member is named');
SELECT throws_ok($$SELECT effect.input_digest('{"amount":1,"a":{"b":1}}', 'b')$$, '2203A', 'inputs have no member "b"', 'fields: top-level members only');
SELECT throws_ok($$SELECT effect.input_digest('{"amount":1}', 'amount', NULL)$$, '22004', NULL, 'fields: NULL among them');
SELECT throws_ok($$SELECT effect.input_digest('{"amount":1}', VARIADIC NULL::text[])$$, '22004', NULL, 'fields: NULL');
SELECT throws_ok($$SELECT effect.input_digest('{"amount":1}', VARIADIC '{}')$$, '22023', NULL, 'fields: none');
SELECT throws_ok($$SELECT effect.input_digest('[1]', 'a')$$, '2203C', NULL, 'fields: inputs are an array');
SELECT throws_ok($$SELECT effect.input_digest('7', 'a')$$, '2203C', NULL, 'fields: inputs are a scalar');
SELECT throws_ok($$SELECT effect.input_digest(NULL, 'a')$$, '22004', NULL, 'fields: inputs are NULL');

-- NULL and depth.
SELECT throws_ok($$SELECT effect.canonical_json(NULL)$$, '22004', NULL, 'canonical_json(NULL)');
SELECT throws_ok($$SELECT effect.input_digest(NULL)$$, '22004', NULL, 'input_digest(NULL)');
SELECT is(length(effect.canonical_json((repeat('[', 1000) || repeat(']', 1000))::jsonb)), 2000, '1000 levels');
SELECT throws_ok($$SELECT effect.canonical_json((repeat('[', 1001) || repeat(']', 1001))::jsonb)$$, '54000', 'inputs are nested too deeply', '1001 levels of arrays');
SELECT throws_ok($$SELECT effect.input_digest((repeat('{"a":', 1001) || '1' || repeat('}', 1001))::jsonb)$$, '54000', 'inputs are nested too deeply', '1001 levels of objects');

-- The key.
SELECT is(effect.effect_key('charge', 'order-7', effect.input_digest('{}')),
		  left(encode(sha256(convert_to('charge|order-7|' || effect.input_digest('{}'), 'UTF8')), 'hex'), 32)::uuid, 'key: the plain formula');
SELECT isnt(effect.effect_key('a|b', 'c', 'd'), effect.effect_key('a', 'b|c', 'd'), 'key: a delimiter does not shift the boundary');
SELECT isnt(effect.effect_key('a\', '|b', 'd'), effect.effect_key('a\|', 'b', 'd'), 'key: nor does an escape');
SELECT isnt(effect.effect_key(E'a\x1f', 'b', 'd'), effect.effect_key('a', E'\x1fb', 'd'), 'key: nor a unit separator');
SELECT isnt(effect.effect_key('refund', 'order-21752', 'd'), effect.effect_key('refund', 'order-33503', 'd'), 'key: names that share a 32-bit hash');
SELECT ok(hashtext('refund:order-21752') = hashtext('refund:order-33503'), 'key: (they do share it)');
SELECT throws_ok(format($$SELECT effect.effect_key(%L, %L, %L)$$, a, t, d), s, NULL, 'key: ' || what)
  FROM (VALUES (1, NULL, 't', 'd', '22004', 'action NULL'), (2, 'a', NULL, 'd', '22004', 'target NULL'),
			   (3, 'a', 't', NULL, '22004', 'input_digest NULL'), (4, '', 't', 'd', '22023', 'action empty'),
			   (5, 'a', '', 'd', '22023', 'target empty'), (6, 'a', 't', '', '22023', 'input_digest empty'),
			   (7, E' \t', 't', 'd', '22023', 'action blank'), (8, 'a', E' \t\n', 'd', '22023', 'target blank'),
			   (9, 'a', 't', ' ', '22023', 'input_digest blank'),
			   (10, repeat('x', 256), 't', 'd', '22023', 'action of 256 bytes'),
			   (11, 'a', repeat('x', 1025), 'd', '22023', 'target of 1025 bytes'),
			   (12, 'a', 't', repeat('x', 256), '22023', 'input_digest of 256 bytes')
	   ) c (n, a, t, d, s, what)
 ORDER BY n;
SELECT lives_ok(format($$SELECT effect.effect_key(%L, %L, 'd')$$, repeat('x', 255), repeat('x', 1024)), 'key: the limits themselves');
SELECT throws_ok(format($$SELECT effect.effect_key('a', 't', %L)$$, d), '22023', 'input_digest is a JSON text, not a digest', 'key: a JSON text as digest: ' || what)
  FROM (VALUES (1, '{}', 'object'), (2, '[1]', 'array'), (3, E' \n{"a":1}', 'after blanks'), (4, '{"a":"' || repeat('x', 300) || '"}', 'a long one')) c (n, d, what)
 ORDER BY n;
SELECT throws_ok(format($$SELECT effect.effect_key('a', 't', %L)$$, upper(effect.input_digest('{}'))), '22023', 'input_digest is in upper-case hex', 'key: upper-case hex as digest');

-- facts: what each type becomes.
CREATE DOMAIN pg_temp.amount AS numeric(12,2);
CREATE DOMAIN pg_temp.amounts AS numeric[];
CREATE TYPE pg_temp.mood AS ENUM ('ok');
CREATE DOMAIN pg_temp.my_mood AS pg_temp.mood;
CREATE FUNCTION pg_temp.fact(value text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT effect.canonical_json(effect.facts(''x'', %s)->''x'')', value) INTO result;
	RETURN result;
END $$;
SET LOCAL timezone = 'America/New_York';
SELECT is(pg_temp.fact(value), expected, 'facts: ' || value)
  FROM (VALUES
	(1, $$true$$, $$true$$), (2, $$(-7)::smallint$$, $$-7$$), (3, $$42$$, $$42$$), (4, $$9223372036854775807$$, $$9223372036854775807$$),
	(5, $$10.50$$, $$10.5$$), (6, $$1e400::numeric$$, $$1e+400$$), (7, $$0.1::float4$$, $$0.1$$),
	(8, $$0.1::float8 + 0.2::float8$$, $$0.30000000000000004$$), (9, $$1e23::float8$$, $$1e+23$$), (10, $$8.41e21::float8$$, $$8.41e+21$$),
	(11, $$'-0'::float8$$, $$0$$), (12, $$5e-324::float8$$, $$5e-324$$),
	(13, $$'a"b\c'::text$$, $$"a\"b\\c"$$), (14, $$'ab'::char(5)$$, $$"ab"$$), (15, $$'ab '::varchar(5)$$, $$"ab "$$), (16, $$'ab'::name$$, $$"ab"$$), (17, $$'literal'$$, $$"literal"$$),
	(18, $$'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid$$, $$"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"$$),
	(19, $$'2026-03-29 00:30:00.120+01'::timestamptz$$, $$"2026-03-28T23:30:00.12Z"$$), (20, $$'2026-03-29 00:30+00'::timestamptz$$, $$"2026-03-29T00:30:00Z"$$),
	(21, $$'0044-03-15 00:00+00 BC'::timestamptz$$, $$"0044-03-15T00:00:00Z BC"$$), (22, $$'12345-01-02 03:04:05.000001+00'::timestamptz$$, $$"12345-01-02T03:04:05.000001Z"$$),
	(23, $$'infinity'::timestamptz$$, $$"infinity"$$), (24, $$'2026-03-29 02:30'::timestamp$$, $$"2026-03-29T02:30:00"$$), (25, $$'-infinity'::timestamp$$, $$"-infinity"$$),
	(26, $$'2026-11-01'::date$$, $$"2026-11-01"$$), (27, $$'0044-03-15 BC'::date$$, $$"0044-03-15 BC"$$), (28, $$'12345-01-02'::date$$, $$"12345-01-02"$$), (29, $$'infinity'::date$$, $$"infinity"$$),
	(30, $$'24:00'::time$$, $$"24:00:00"$$), (31, $$'10:00:00.5+05:30'::timetz$$, $$"10:00:00.5+05:30"$$),
	(32, $$'90 minutes'::interval$$, $$"PT1H30M"$$), (33, $$'1 year 2 mons -3 days 4:05:06.7'::interval$$, $$"P1Y2M-3DT4H5M6.7S"$$), (34, $$'0'::interval$$, $$"PT0S"$$), (35, $$'-1.5 sec'::interval$$, $$"PT-1.5S"$$),
	(36, $$'\xDEad'::bytea$$, $$"\\xdead"$$), (37, $$''::bytea$$, $$"\\x"$$),
	(38, $$'{"b": 1.0, "a": [1e2]}'::json$$, $${"a":[100],"b":1}$$), (39, $$'{"b": 1.0, "a": [1e2]}'::jsonb$$, $${"a":[100],"b":1}$$), (40, $$NULL$$, $$null$$), (41, $$NULL::numeric$$, $$null$$), (42, $$NULL::int[]$$, $$null$$),
	(43, $$ARRAY[[1,2],[3,NULL]]$$, $$[[1,2],[3,null]]$$), (44, $$'{}'::text[]$$, $$[]$$), (45, $$ARRAY['a"b', NULL]$$, $$["a\"b",null]$$), (46, $$ARRAY['2026-03-29 00:30+00'::timestamptz]$$, $$["2026-03-29T00:30:00Z"]$$), (47, $$'[0:1]={7,8}'::int[]$$, $$[7,8]$$),
	(48, $$10.5::pg_temp.amount$$, $$10.5$$), (49, $$ARRAY[1.50,2]::pg_temp.amounts$$, $$[1.5,2]$$), (50, $$ARRAY[1.5]::pg_temp.amount[]$$, $$[1.5]$$)
	   ) c (n, value, expected)
 ORDER BY n;
SELECT is(effect.facts(VARIADIC ARRAY['a', '1', 'b', NULL]), '{"a": "1", "b": null}', 'facts: an array of names and values');
SELECT is(effect.facts(VARIADIC '{}'::text[]), '{}', 'facts: an empty array has none');
SELECT is((effect.facts('x', at)->>'x')::timestamptz, at, 'facts: an instant reads back') FROM (VALUES ('0044-03-15 01:02:03.4+00 BC'::timestamptz)) c (at);
SELECT setseed(:seed) \g /dev/null
SELECT is_empty($$
	WITH f AS MATERIALIZED (SELECT (random() - 0.5)::float8 * 10.0::float8 ^ (random() * 600 - 300)::int AS v FROM generate_series(1, 2000))
	SELECT v, effect.facts('x', v) FROM f
	 WHERE (effect.facts('x', v)->>'x')::float8 <> v OR length(effect.canonical_json(effect.facts('x', v)->'x')) > length(effect.canonical_json(v::text::jsonb))
	$$, 'facts: floats read back, in no more digits than PostgreSQL takes');

-- facts: what it refuses.
SELECT throws_ok('SELECT effect.facts(' || args || ')', s, m, 'facts: refuses ' || what)
  FROM (VALUES
	(1, $$'a'$$, '22023', NULL, 'a name without a value'), (2, $$'a', 1, 'b'$$, '22023', NULL, 'an odd number of arguments'),
	(3, $$NULL, 1$$, '22004', 'name of fact 1 must not be NULL', 'a NULL name'), (4, $$'a', 1, ' ', 2$$, '22023', 'name of fact 2 must not be blank', 'a blank name'),
	(5, $$1, 1$$, '42804', 'name of fact 1 must be text, not integer', 'a number as name'), (6, $$'a', 1, 'b', 2, 'a', 3$$, '22030', 'fact "a" is given twice', 'a name given twice'),
	(7, $$VARIADIC NULL::text[]$$, '22004', NULL, 'a NULL array'),
	(8, $$'a', 'NaN'::float8$$, '22023', 'fact "a" is not a finite number', 'NaN'), (9, $$'a', '-Infinity'::float4$$, '22023', 'fact "a" is not a finite number', 'a float''s infinity'),
	(10, $$'a', 'NaN'::numeric$$, '22023', 'fact "a" is not a finite number', 'numeric''s NaN'), (11, $$'a', ARRAY['Infinity'::numeric]$$, '22023', 'fact "a" is not a finite number', 'numeric''s infinity'),
	(12, $$'a', (CASE WHEN current_setting('server_version_num')::int >= 170000 THEN 'infinity' ELSE '178956970 years 7 mons 2147483647 days 2562047788:00:54.775807' END)::interval$$, '22023', 'fact "a" is an infinite interval', 'what 17 reads as an infinite interval'),
	(13, $$'a', '1'::money$$, '42804', 'fact "a" is of type money, which facts() does not take', 'money'),
	(14, $$'a', 'pg_class'::regclass$$, '42804', 'fact "a" is of type regclass, which facts() does not take', 'regclass'),
	(15, $$'a', ROW(1, 2)$$, '42804', 'fact "a" is of type record, which facts() does not take', 'a row'),
	(16, $$'a', 'ok'::pg_temp.mood$$, '42804', NULL, 'an enum'), (17, $$'a', 'ok'::pg_temp.my_mood$$, '42804', NULL, 'a domain over an enum'),
	(18, $$'a', ARRAY[]::pg_temp.mood[]$$, '42804', NULL, 'an empty array of an enum'), (19, $$'a', NULL::pg_temp.mood$$, '42804', NULL, 'a NULL of an enum'),
	(20, $$'a', int4range(1, 2)$$, '42804', NULL, 'a range'), (21, $$'a', '1.2.3.4'::inet$$, '42804', NULL, 'inet')
	   ) c (n, args, s, m, what)
 ORDER BY n;

-- No setting of the session changes a key; the one expected was computed in node.
CREATE TEMP TABLE fact AS SELECT 'slot-1'::text AS slot, '2026-03-29 00:30:00+00'::timestamptz AS at, '2026-03-29'::date AS due, '02:30'::time AS opens,
	'2026-03-29 02:30'::timestamp AS wall, '90 minutes'::interval AS len, 0.1::float8 + 0.2::float8 AS x, 0.1::float4 AS y, '\xdead'::bytea AS b, 1234.50::numeric AS amount;
CREATE FUNCTION pg_temp.under(setting text, value text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before text := current_setting(setting);
	result text;
BEGIN
	BEGIN
		PERFORM set_config(setting, value, true);
	EXCEPTION WHEN invalid_parameter_value THEN
		IF setting !~ '^lc_' THEN	-- not every machine has every locale
			RAISE;
		END IF;
	END;
	EXECUTE query INTO result;
	PERFORM set_config(setting, before, true);
	RETURN result;
END $$;
CREATE TEMP TABLE variation (n int, setting text, value text);
INSERT INTO variation VALUES
	(1, 'TimeZone', 'UTC'), (2, 'TimeZone', 'Europe/Berlin'), (3, 'TimeZone', 'Australia/Lord_Howe'), (4, 'DateStyle', 'SQL, DMY'), (5, 'DateStyle', 'German'),
	(6, 'DateStyle', 'Postgres, MDY'), (7, 'IntervalStyle', 'iso_8601'), (8, 'IntervalStyle', 'sql_standard'), (9, 'IntervalStyle', 'postgres_verbose'), (10, 'extra_float_digits', '0'),
	(11, 'extra_float_digits', '-15'), (12, 'bytea_output', 'escape'), (13, 'search_path', ''), (14, 'standard_conforming_strings', 'off'), (15, 'array_nulls', 'off'),
	(16, 'lc_numeric', 'de_DE.UTF-8');
\set key 'effect.effect_key(''book'', slot, effect.input_digest(effect.facts(''at'', at, ''due'', due, ''opens'', opens, ''wall'', wall, ''len'', len, ''x'', x, ''y'', y, ''b'', b, ''amount'', amount, ''all'', ARRAY[at])))'
SELECT is(pg_temp.under(setting, value, format('SELECT %s FROM pg_temp.fact', :'key')), 'b5a04f65-3964-7dc3-59a4-49186d7d29b1', format('one key under %s = ''%s''', setting, value))
  FROM variation ORDER BY n;
SELECT ok(count(DISTINCT pg_temp.under(setting, value, 'SELECT effect.input_digest(pg_catalog.to_jsonb(f)) FROM pg_temp.fact f')) >= 4, '(to_jsonb, for comparison, gives several)') FROM variation;

-- An index and a generated column never disagree with a fresh call.
CREATE TEMP TABLE booking (slot text, at timestamptz, len interval, x float8,
	key uuid GENERATED ALWAYS AS (effect.effect_key('book', slot, effect.input_digest(effect.facts('at', at, 'len', len, 'x', x)))) STORED UNIQUE);
CREATE INDEX booking_expression ON booking (effect.effect_key('book', slot, effect.input_digest(effect.facts('at', at, 'len', len, 'x', x))));
INSERT INTO booking SELECT 'slot-' || n, '2026-03-29 00:00+00'::timestamptz + n * '1 hour'::interval, n * '7 minutes'::interval, n / 7.0::float8 FROM generate_series(1, 100) n;
SET LOCAL timezone = 'Australia/Lord_Howe';
SET LOCAL datestyle = 'SQL, DMY';
SET LOCAL intervalstyle = 'iso_8601';
SET LOCAL extra_float_digits = 0;
SET LOCAL enable_seqscan = off;
SELECT is(count(*)::int, 100, 'the generated column equals a fresh call in another session''s settings')
  FROM booking WHERE key = effect.effect_key('book', slot, effect.input_digest(effect.facts('at', at, 'len', len, 'x', x)));
SELECT is(count(*)::int, 100, 'the index finds every row by a key computed anew')
  FROM (SELECT slot AS s, at AS a, len AS l, x AS f FROM booking OFFSET 0) b
  JOIN LATERAL (SELECT 1 FROM booking WHERE effect.effect_key('book', slot, effect.input_digest(effect.facts('at', at, 'len', len, 'x', x))) = effect.effect_key('book', b.s, effect.input_digest(effect.facts('at', b.a, 'len', b.l, 'x', b.f)))) m ON true;
SELECT throws_ok($$INSERT INTO booking (slot, at, len, x) SELECT slot, at, len, x FROM booking LIMIT 1$$, '23505', NULL, 'and a second booking of the same facts is refused');
SELECT throws_ok($$INSERT INTO booking (slot) VALUES (NULL)$$, '22004', NULL, 'a NULL part stops the row, it does not switch dedupe off');
RESET enable_seqscan;

-- Equal as jsonb is equal as key: random documents from a small world, so that
-- many are equal and few are spelled alike.
CREATE FUNCTION pg_temp.random_text(depth int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	names text[] := ARRAY['a', 'b', 'aa', '\u00e9', 'e\u0301', '\ue000', '\ud83d\ude00'];
	numbers text[] := ARRAY['1', '1.0', '1e0', '10e-1', '1.01', '1.010', '0', '-0', '0.0', '1e2', '100', '9007199254740992', '9007199254740993', '1e-7', '0.0000001'];
	parts text[] := '{}';
	how float8 := random();
BEGIN
	IF depth > 0 AND how < 0.5 THEN
		FOR i IN 1 .. (random() * 3)::int LOOP
			parts := parts || format('"%s" : %s', names[1 + floor(random() * 7)::int], pg_temp.random_text(depth - 1));
		END LOOP;
		RETURN '{' || array_to_string(parts, ' , ') || '}';
	ELSIF depth > 0 AND how < 0.7 THEN
		FOR i IN 1 .. (random() * 2)::int LOOP
			parts := parts || pg_temp.random_text(depth - 1);
		END LOOP;
		RETURN '[' || array_to_string(parts, ',') || ']';
	ELSIF how < 0.9 THEN
		RETURN numbers[1 + floor(random() * 15)::int];
	END IF;
	RETURN (ARRAY['null', 'true', '"a"', '"\u0061"', '"1"', '"\u00e9"', '"e\u0301"'])[1 + floor(random() * 7)::int];
END $$;
SELECT diag('seed: ', :'seed');
SELECT setseed(:seed) \g /dev/null
CREATE TEMP TABLE random_document AS
	SELECT n, t, t::jsonb AS document FROM (SELECT n, pg_temp.random_text(2) AS t FROM generate_series(1, 600) n) r;
ALTER TABLE random_document ADD digest text;
UPDATE random_document SET digest = effect.input_digest(document);
SELECT is(count(*)::int, 0, 'equal as jsonb if and only if equal as digest')
  FROM random_document a JOIN random_document b ON a.n < b.n
 WHERE (a.document = b.document) <> (a.digest = b.digest);
SELECT cmp_ok(count(*)::int, '>', 100, '(and many a pair is equal without being spelled alike)')
  FROM random_document a JOIN random_document b ON a.n < b.n AND a.document = b.document AND a.t <> b.t;
SELECT is(count(*)::int, 0, 'the canonical text reads back as the same document')
  FROM random_document WHERE effect.canonical_json(document)::jsonb <> document;
SELECT is(count(*)::int, 0, 'the digest is sha256 of the canonical text')
  FROM random_document WHERE encode(sha256(convert_to(effect.canonical_json(document), 'UTF8')), 'hex') <> digest;

SELECT * FROM finish();
ROLLBACK;
