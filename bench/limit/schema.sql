-- The limit: what the fewest durable commits cost.  The ledger's columns and the index of
-- its key, as a bare table has them: no other index, no check, no trigger, no fence.
--
-- A script makes a key of 19 random digits, since digits are hex as well: the cheapest uuid
-- pgbench can make, and as random as a digest.
CREATE SCHEMA bench_limit;

CREATE TABLE bench_limit.ledger (LIKE effect.ledger);
ALTER TABLE bench_limit.ledger ADD PRIMARY KEY (effect_key);

CREATE TABLE bench_limit.lease (LIKE effect.lease) WITH (fillfactor = 50);
ALTER TABLE bench_limit.lease ADD PRIMARY KEY (job_key);

CREATE TABLE bench_limit.document (
	id		bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	body	text NOT NULL
);
