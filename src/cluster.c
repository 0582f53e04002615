/*
 * cluster.c
 *	  Where are we, and from which number do tokens count here?
 *
 * effect.cluster holds one row: system identifier, timeline, database and table
 * the tokens were last counted at, and the epoch.  A promotion, a recovery to a
 * point, a restore (also into the database it came from: the table is another)
 * and pg_upgrade all change one of the four, and each may have forgotten grants
 * that the old place made.  So at a session's first call
 * that writes, the row is compared with where we are; where they differ, the
 * epoch rises and every lease is freed, under EFFECT_LOCK_CLUSTER.
 *
 * Timelines alone repeat: two standbys promoted in turn both call themselves
 * timeline 2.  The minutes of the clock in the epoch tell them apart.
 *
 * A backend remembers that it has looked, for the table it looked at.  It
 * remembers only a row that some other transaction committed: its own step may
 * still be rolled back.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/inval.h"

#include "direct.h"

PG_FUNCTION_INFO_V1(effect_bump_epochs);
PG_FUNCTION_INFO_V1(effect_quarantine);
PG_FUNCTION_INFO_V1(effect_adopt_cluster);

/* A token is epoch * 2^24 + a count, below 2^53 for JavaScript's sake. */
#define CLUSTER_EPOCH_BITS	24
#define CLUSTER_MAX_EPOCH	((INT64CONST(1) << (53 - CLUSTER_EPOCH_BITS)) - 1)

typedef struct Place
{
	int64		system_identifier;
	int32		timeline;
	Oid			database;
	Oid			table;
	char	   *site;
	int64		epoch;
	TimestampTz moved_at;
	TimestampTz quarantined;	/* since then; 0: it is not */
	bool		ours;			/* written by this transaction */
} Place;

static Oid	cluster_known = InvalidOid; /* the effect.cluster we found right */
static TimestampTz cluster_known_since; /* and since when it is */

static SqlPlan cluster_select = {
	"SELECT system_identifier, timeline, database_oid, table_oid, site, epoch,"
	" moved_at, quarantined_since, xmin, ctid FROM effect.cluster"
	" WHERE only_row",
	0
};

static SqlPlan cluster_upsert = {
	"INSERT INTO effect.cluster AS c (system_identifier, timeline, database_oid, table_oid, site,"
	" epoch, moved_at, quarantined_since, quarantine_reason)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (only_row) DO UPDATE"
	" SET system_identifier = $1, timeline = $2, database_oid = $3, table_oid = $4, site = $5,"
	" epoch = $6, moved_at = $7, quarantined_since = COALESCE($8, c.quarantined_since),"
	" quarantine_reason = COALESCE($9, c.quarantine_reason)",
	9, {INT8OID, INT4OID, OIDOID, OIDOID, TEXTOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID}
};

static SqlPlan cluster_release = {
	"UPDATE effect.cluster SET quarantined_since = NULL, quarantine_reason = NULL WHERE only_row",
	0
};

/* A lease that was superseded where we come from may look current here. */
static SqlPlan cluster_free_leases = {
	"WITH freed AS (UPDATE effect.lease SET owner = NULL WHERE owner IS NOT NULL"
	"   RETURNING job_key, fencing_token)"
	" UPDATE effect.run AS r SET outcome = 'revoked'::effect.run_outcome, ended_at = $1"
	" FROM freed AS f WHERE r.job_key OPERATOR(pg_catalog.=) f.job_key"
	" AND r.fencing_token OPERATOR(pg_catalog.=) f.fencing_token"
	" AND r.outcome OPERATOR(pg_catalog.=) 'running'::effect.run_outcome",
	1, {TIMESTAMPTZOID}
};

/* The columns of effect.cluster */
enum
{
	CLUSTER_ONLY_ROW,
	CLUSTER_SYSTEM_IDENTIFIER,
	CLUSTER_TIMELINE,
	CLUSTER_DATABASE,
	CLUSTER_TABLE,
	CLUSTER_SITE,
	CLUSTER_EPOCH,
	CLUSTER_MOVED_AT,
	CLUSTER_QUARANTINED,
	CLUSTER_REASON,
	CLUSTER_COLUMNS
};

static const char *const cluster_names[CLUSTER_COLUMNS] = {
	"only_row", "system_identifier", "timeline", "database_oid", "table_oid", "site", "epoch",
	"moved_at", "quarantined_since", "quarantine_reason"
};

static DirectTable cluster_table = {"cluster", "cluster_pkey", 1, CLUSTER_COLUMNS, cluster_names};

/* The lowest token without a statement; false: not directly. */
static bool
cluster_look_for_token(int64 *token)
{
	Datum		key = BoolGetDatum(true);

	if (!direct_begin(&cluster_table, AccessShareLock))
		return false;
	*token = 1;
	if (direct_find(&cluster_table, &key, LOCK_NONE))
		*token += DatumGetInt64(cluster_table.value[CLUSTER_EPOCH]) << CLUSTER_EPOCH_BITS;
	direct_end(&cluster_table);
	return true;
}

/* Where the row says we are; false: there is no row yet. */
static bool
cluster_read(SqlScope *scope, Place *place)
{
	SqlArgs		args = {0};
	Datum		value;
	Datum		tid;

	if (sql_read(&cluster_select, &args) == 0)
		return false;
	sql_column(1, &value);
	place->system_identifier = DatumGetInt64(value);
	sql_column(2, &value);
	place->timeline = DatumGetInt32(value);
	sql_column(3, &value);
	place->database = DatumGetObjectId(value);
	sql_column(4, &value);
	place->table = DatumGetObjectId(value);
	place->site = sql_column_text(scope, 5);
	sql_column(6, &value);
	place->epoch = DatumGetInt64(value);
	place->moved_at = sql_column_time(7);
	place->quarantined = sql_column_time(8);
	sql_column(9, &value);
	sql_column(10, &tid);
	place->ours = sql_is_ours("cluster", DatumGetTransactionId(value),
							  (ItemPointer) DatumGetPointer(tid));
	return true;
}

/* Where we are. */
static void
cluster_here(Place *place)
{
	place->system_identifier = (int64) GetSystemIdentifier();
	place->timeline = (int32) GetWALInsertionTimeLine();
	place->database = MyDatabaseId;
	place->table = sql_relation("cluster");
	place->site = effect_site ? effect_site : "";
}

/* The identity of a place: another one is a copy, not a continuation. */
static bool
cluster_identity_same(const Place *a, const Place *b)
{
	return a->system_identifier == b->system_identifier && a->database == b->database &&
		strcmp(a->site, b->site) == 0;
}

static bool
cluster_same(const Place *a, const Place *b)
{
	return cluster_identity_same(a, b) && a->timeline == b->timeline && a->table == b->table;
}

/* Minutes since 2026-01-01 UTC: what a new epoch is at least. */
static int64
cluster_minutes(void)
{
	TimestampTz start = (TimestampTz) (date2j(2026, 1, 1) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY;

	return (GetCurrentTimestamp() - start) / USECS_PER_MINUTE;
}

/* Write the row that says we are here, counting from this epoch. */
static void
cluster_write(const Place *place, const char *quarantine)
{
	SqlArgs		args = {0};
	TimestampTz now = GetCurrentTimestamp();

	sql_arg(&args, Int64GetDatum(place->system_identifier), false);
	sql_arg(&args, Int32GetDatum(place->timeline), false);
	sql_arg(&args, ObjectIdGetDatum(place->database), false);
	sql_arg(&args, ObjectIdGetDatum(place->table), false);
	sql_arg_text(&args, place->site);
	sql_arg(&args, Int64GetDatum(place->epoch), false);
	sql_arg(&args, TimestampTzGetDatum(place->moved_at), false);
	sql_arg_time(&args, quarantine ? now : 0);
	sql_arg_text(&args, quarantine);
	(void) sql_write(&cluster_upsert, &args);
}

/*
 * Tell every backend to look again, once this commits: the button must work on
 * those that have already looked.
 */
static void
cluster_tell_all(void)
{
	CacheInvalidateRelcacheByRelid(sql_relation("cluster"));
}

static void
cluster_forget(Oid relid)
{
	if (relid == InvalidOid || relid == cluster_known)
		cluster_known = InvalidOid;
}

/* A new epoch here, and every lease freed.  Under the cluster's lock. */
static void
cluster_step(Place *place, const char *event, const char *quarantine)
{
	SqlArgs		args = {0};
	JournalEntry entry = {.event = event};
	int64		epoch = Max(place->epoch + 1, cluster_minutes());

	if (epoch > CLUSTER_MAX_EPOCH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("no epoch of fencing tokens is left below 2^53"),
				 errhint("Check the server's clock.")));
	cluster_here(place);
	place->epoch = epoch;
	place->moved_at = GetCurrentTimestamp();
	cluster_write(place, quarantine);
	sql_arg_time(&args, GetCurrentTimestamp());
	(void) sql_write(&cluster_free_leases, &args);
	cluster_tell_all();
	entry.detail = psprintf("epoch " INT64_FORMAT ": every lease is freed%s%s", epoch,
							quarantine ? "; quarantined: " : "", quarantine ? quarantine : "");
	journal_add(&entry);
}

/*
 * First use in this database: write the row.  If another session is just
 * writing it, go on without: it is the same row, and nothing has moved.
 */
static void
cluster_start(SqlScope *scope)
{
	Place		here = {0};

	if (!lock_advisory(EFFECT_LOCK_CLUSTER, 0, ExclusiveLock, false))
		return;
	if (cluster_read(scope, &here))
		return;
	cluster_here(&here);
	here.moved_at = DT_NOBEGIN;	/* it has always been here */
	cluster_write(&here, NULL);
}

/* Why a database that finds itself here sends nothing; NULL: it may. */
static const char *
cluster_quarantine_reason(const Place *here, const Place *there)
{
	if (!cluster_identity_same(here, there))
		return "restored, cloned, or configured for another site";
	if (effect_after_failover == FAILOVER_QUARANTINE)
		return "promoted, recovered or restored: ledger rows may be lost";
	return NULL;
}

/*
 * cluster_check
 *		Called by everything that writes, before it takes any other lock: are we
 *		still where the tokens were counted?  After the first time in a session
 *		it costs one comparison, unless we are quarantined.
 */
void
cluster_check(void)
{
	static bool listens = false;
	Oid			relid = sql_relation("cluster");
	SqlScope	scope;
	Place		here;
	Place		there;

	AcceptInvalidationMessages();	/* a quarantine counts from its commit on */
	if (relid == cluster_known)
		return;
	if (!listens)
		sql_tell_of_changes(cluster_forget);
	listens = true;
	cluster_here(&here);
	sql_open(&scope);
	if (!cluster_read(&scope, &there))
		cluster_start(&scope);
	else if (!cluster_same(&here, &there))
	{
		(void) lock_advisory(EFFECT_LOCK_CLUSTER, 0, ExclusiveLock, true);
		if (cluster_read(&scope, &there) && !cluster_same(&here, &there))
		{
			cluster_step(&there, "moved", cluster_quarantine_reason(&here, &there));
			cluster_flush_commit();
		}
	}
	else if (!there.ours && there.quarantined == 0)
	{
		cluster_known = relid;
		cluster_known_since = there.moved_at;
	}
	sql_close(&scope);
}

/* Is nothing to be claimed or sent from here?  After cluster_check(). */
bool
cluster_quarantined(void)
{
	SqlScope	scope;
	Place		there;
	bool		quarantined;

	if (sql_relation("cluster") == cluster_known)
		return false;
	sql_open(&scope);
	quarantined = cluster_read(&scope, &there) && there.quarantined != 0;
	sql_close(&scope);
	return quarantined;
}

/*
 * cluster_moved_at
 *		When this place began to act.  An attempt from before that has no holder
 *		here, even where it is its own lease.
 */
TimestampTz
cluster_moved_at(void)
{
	SqlScope	scope;
	Place		there;
	bool		found;

	if (sql_relation("cluster") == cluster_known)
		return cluster_known_since;
	sql_open(&scope);
	found = cluster_read(&scope, &there);
	sql_close(&scope);
	return found ? there.moved_at : DT_NOBEGIN;
}

/* The lowest token a grant may have now.  As the owner, inside a scope. */
int64
cluster_first_token(SqlScope *scope)
{
	Place		there;
	int64		token;

	if (cluster_look_for_token(&token))
		return token;
	if (!cluster_read(scope, &there))
		return 1;
	return (there.epoch << CLUSTER_EPOCH_BITS) + 1;
}

/*
 * cluster_flush_commit
 *		This transaction's commit is evidence: it is on disk before anyone is
 *		told, whatever synchronous_commit says.  "off" is raised to "on", so
 *		that a synchronous standby is waited for too; the flush itself holds
 *		even where somebody lowers the setting again before COMMIT.
 */
void
cluster_flush_commit(void)
{
	ForceSyncCommit();
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * The row as it is, for a step by hand: under the cluster's lock; a first one
 * where there is none.
 */
static void
cluster_lock(SqlScope *scope, Place *place)
{
	(void) lock_advisory(EFFECT_LOCK_CLUSTER, 0, ExclusiveLock, true);
	if (cluster_read(scope, place))
		return;
	memset(place, 0, sizeof(*place));
	cluster_here(place);
	place->moved_at = DT_NOBEGIN;
	cluster_write(place, NULL);
}

/*
 * effect.bump_epochs() -> bigint
 *		Operator: the step to a new epoch by hand, for a copy that was started
 *		without a new timeline (a storage snapshot).  Returns the new epoch.
 *		Waits for grants and for fenced commits in flight, prepared ones
 *		included (lock_timeout bounds that), so that none of them lands in the
 *		new epoch.  Errors: 25006, LE011 (quarantined: adopt_cluster takes this
 *		step).
 */
Datum
effect_bump_epochs(PG_FUNCTION_ARGS)
{
	SqlScope	scope;
	Place		place;

	begin_writing("effect.bump_epochs()");
	(void) lock_advisory(EFFECT_LOCK_EPOCH, 0, ExclusiveLock, true);
	lease_lock_all();
	sql_open(&scope);
	cluster_lock(&scope, &place);
	if (place.quarantined != 0)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_QUARANTINED),
				 errmsg("this database is quarantined since %s", timestamptz_to_str(place.quarantined)),
				 errhint("SELECT effect.adopt_cluster(): it ends the quarantine and starts a new epoch.")));
	cluster_step(&place, "epoch_bumped", NULL);
	cluster_flush_commit();
	sql_close(&scope);
	PG_RETURN_INT64(place.epoch);
}

/*
 * effect.quarantine(reason) -> void
 *		Operator: the first line of every clone script, and the button that
 *		stops everything: once committed nothing is claimed or sent from here.
 *		Completing, resolving and inside effects go on.  Errors: 22004, 22023,
 *		25006.
 */
Datum
effect_quarantine(PG_FUNCTION_ARGS)
{
	char	   *reason = arg_text(fcinfo, 0, "reason", EFFECT_MAX_REASON);
	SqlScope	scope;
	Place		place;
	JournalEntry entry = {.event = "quarantined", .detail = reason};

	begin_writing("effect.quarantine()");
	sql_open(&scope);
	cluster_lock(&scope, &place);
	cluster_write(&place, reason);
	journal_add(&entry);
	cluster_tell_all();
	cluster_flush_commit();
	sql_close(&scope);
	PG_RETURN_VOID();
}

/*
 * effect.adopt_cluster() -> bigint
 *		Operator: this place is the one that acts from now on.  Ends a
 *		quarantine, starts a new epoch and frees every lease, so that what was
 *		in flight is unknown.  Returns the epoch.  Errors: 25006.
 */
Datum
effect_adopt_cluster(PG_FUNCTION_ARGS)
{
	SqlScope	scope;
	SqlArgs		none = {0};
	Place		place;

	begin_writing("effect.adopt_cluster()");
	(void) lock_advisory(EFFECT_LOCK_EPOCH, 0, ExclusiveLock, true);
	lease_lock_all();
	sql_open(&scope);
	cluster_lock(&scope, &place);
	cluster_step(&place, "adopted", NULL);
	(void) sql_write(&cluster_release, &none);
	cluster_flush_commit();
	sql_close(&scope);
	PG_RETURN_INT64(place.epoch);
}
