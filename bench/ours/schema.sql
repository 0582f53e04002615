-- Each script divides by one where the answer is the wanted one and by zero where it is not:
-- an error ends that client, and the run has failed.  A refusal is never measured as work.
CREATE SCHEMA bench_ours;

CREATE TABLE bench_ours.document (
	id		bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	body	text NOT NULL
);
