-- What the shop needs for the night with effect.
\set ON_ERROR_STOP on
SET client_min_messages = warning;

CREATE EXTENSION effect;

-- Nothing is granted to PUBLIC: each role is given the set it needs.
SELECT effect.grant_worker('app') \g /dev/null
SELECT effect.grant_operator('ops') \g /dev/null
SELECT effect.grant_monitor('watch') \g /dev/null

-- A receipt can only be written by a transaction that holds the job's fence, and never
-- under an older token than the one it was written under.
SELECT effect.require_fence('receipt', 'nightly') \g /dev/null
SELECT effect.keep_token_monotonic('receipt', 'fencing_token') \g /dev/null
