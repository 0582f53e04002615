-- run_job: a job that is plain SQL, from pg_cron or by hand.

CREATE PROCEDURE effect.run_job(
	job_key text, command text, firing text DEFAULT NULL, owner text DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'effect_run_job'
	LANGUAGE C;
COMMENT ON PROCEDURE effect.run_job(text, text, text, text) IS
	'claim, run the command fenced ($1 token, $2 firing, $3 checkpoint; again while it returns a checkpoint), record, release';

