-- The textbook: what one writes by hand, and believes.  Text for names and states, a row an
-- effect, the token compared in every statement.
CREATE SCHEMA bench_textbook;

CREATE TABLE bench_textbook.lease (
	job			text PRIMARY KEY,
	owner		text,
	token		bigint NOT NULL,
	expires_at	timestamptz
);

CREATE TABLE bench_textbook.effect (
	key			text PRIMARY KEY,
	action		text NOT NULL,
	target		text NOT NULL,
	inputs		jsonb NOT NULL,
	job			text NOT NULL,
	token		bigint NOT NULL,
	state		text NOT NULL CHECK (state IN ('claimed', 'submitted', 'done')),
	response	jsonb,
	created_at	timestamptz NOT NULL DEFAULT now(),
	updated_at	timestamptz NOT NULL DEFAULT now()
);
