/*
 * fenced_table.c
 *	  Fences on users' own tables: fenced_insert, and the triggers that
 *	  require_fence and keep_token_monotonic put there.
 *
 * Everything here runs with the caller's rights: the target's privileges, row
 * security and triggers apply.  Nothing lives here between calls; the triggers
 * live in the catalogs and ask fence.c.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_fenced_insert);
PG_FUNCTION_INFO_V1(effect_require_fence);
PG_FUNCTION_INFO_V1(effect_drop_fence);
PG_FUNCTION_INFO_V1(effect_keep_token_monotonic);
PG_FUNCTION_INFO_V1(effect_check_fence);
PG_FUNCTION_INFO_V1(effect_check_token_monotonic);

#define FENCE_TRIGGER	"effect_require_fence"
/* BEFORE triggers fire in name order: this one has the last word on the row */
#define TOKEN_TRIGGER	"zz_effect_keep_token_monotonic"

static char *
table_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

/* A target that is needed, and exists. */
static Oid
table_arg(FunctionCallInfo fcinfo, int n)
{
	Oid			relid;

	if (PG_ARGISNULL(n))
		arg_missing("target");
	relid = PG_GETARG_OID(n);
	if (get_rel_name(relid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return relid;
}

/* Run a statement as the caller; it must succeed as this SPI result code. */
static void
table_execute(const char *sql, int nargs, Oid *types, Datum *values, int expected)
{
	int			result = SPI_execute_with_args(sql, nargs, types, values, NULL, false, 0);

	if (result != expected)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(result));
}

/* The column of this name; an unknown one is the caller's mistake. */
static AttrNumber
table_column(Oid relid, const char *name, const char *hint)
{
	AttrNumber	column = get_attnum(relid, name);

	if (column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name, get_rel_name(relid)),
				 errhint("%s", hint)));
	return column;
}

/*
 * The INSERT for the members that are there: defaults, identity and generated
 * columns of the others work as in a statement that does not name them.
 */
static char *
table_insert_sql(Oid relid, Jsonb *row)
{
	StringInfoData columns;
	StringInfoData types;
	JsonbIterator *it = JsonbIteratorInit(&row->root);
	JsonbValue	value;
	JsonbIteratorToken token;

	initStringInfo(&columns);
	initStringInfo(&types);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		char	   *name;
		const char *comma = columns.len > 0 ? ", " : "";
		Oid			type;
		int32		typmod;
		Oid			collation;
		AttrNumber	column;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(value.val.string.val, value.val.string.len);
		column = table_column(relid, name, "Each member of new_row names a column of the target, "
							  "in its exact spelling.");
		get_atttypetypmodcoll(relid, column, &type, &typmod, &collation);
		appendStringInfo(&columns, "%s%s", comma, quote_identifier(name));
		appendStringInfo(&types, "%s%s %s", comma, quote_identifier(name),
						 format_type_extended(type, typmod,
											  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	}
	if (columns.len == 0)
		return psprintf("INSERT INTO %s AS t DEFAULT VALUES RETURNING pg_catalog.to_jsonb(t.*)",
						table_name(relid));
	return psprintf("INSERT INTO %s AS t (%s) SELECT %s FROM pg_catalog.jsonb_to_record($1) AS r (%s)"
					" RETURNING pg_catalog.to_jsonb(t.*)",
					table_name(relid), columns.data, columns.data, types.data);
}

/*
 * effect.fenced_insert(job_key, fencing_token, target, new_row) -> jsonb
 *		The row as stored, defaults filled in; NULL: fenced, nothing written.
 *		As the caller: INSERT and SELECT on the target are needed.
 *		Errors: 22004, 22023, 25006, 42703 (a member that is no column), LE003,
 *		whatever the INSERT raises, and LE001 at COMMIT.
 */
Datum
effect_fenced_insert(PG_FUNCTION_ARGS)
{
	char	   *job_key = arg_text(fcinfo, 0, "job_key", EFFECT_MAX_KEY);
	int64		token = arg_token(fcinfo, 1);
	Oid			relid = table_arg(fcinfo, 2);
	Jsonb	   *row = arg_jsonb(fcinfo, 3, "new_row");
	MemoryContext caller = CurrentMemoryContext;
	Oid			types[1] = {JSONBOID};
	Datum		values[1] = {JsonbPGetDatum(row)};
	Lease		lease;
	Datum		stored;
	bool		isnull;

	if (row == NULL)
		arg_missing("new_row");
	if (!JB_ROOT_IS_OBJECT(row))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("new_row must be a JSON object"),
				 errhint("Its members are the columns, for example '{\"id\": 1}'.")));
	begin_writing("effect.fenced_insert()");
	if (!lease_accepts(job_key, token, &lease))
	{
		lease_refused(job_key, token, "fenced_insert");
		PG_RETURN_NULL();
	}
	fence_add(job_key, token);
	SPI_connect();
	table_execute(table_insert_sql(relid, row), 1, types, values, SPI_OK_INSERT_RETURNING);
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("the row was not stored"),
				 errdetail("A trigger or rule of \"%s\" suppressed the insert.", get_rel_name(relid))));
	stored = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	MemoryContextSwitchTo(caller);
	stored = PointerGetDatum(PG_DETOAST_DATUM_COPY(stored));
	SPI_finish();
	PG_RETURN_DATUM(stored);
}

/* Only a table's owner may hang our triggers on it, and only on real tables. */
static void
table_check_owner(Oid relid)
{
	char		kind = get_rel_relkind(relid);

	if (!compat_owns_relation(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relid));
	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", get_rel_name(relid)),
				 errhint("Fence the tables that a view reads, or those at the other server.")));
}

/* A write through the parent would walk around a fence on one partition. */
static void
table_check_whole(Oid relid)
{
	if (get_rel_relispartition(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a partition", get_rel_name(relid)),
				 errhint("Require the fence on the partitioned table: it marks every partition.")));
}

/* The table, and its partitions where it has some, each locked. */
static List *
table_and_partitions(Oid relid)
{
	if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE)
		return find_all_inheritors(relid, ShareRowExclusiveLock, NULL);
	LockRelationOid(relid, ShareRowExclusiveLock);
	return list_make1_oid(relid);
}

/* Drop a trigger of ours where it is; was it there? */
static bool
table_drop_trigger(Oid relid, const char *trigger)
{
	if (!OidIsValid(get_trigger_oid(relid, trigger, true)))
		return false;
	table_execute(psprintf("DROP TRIGGER %s ON %s", trigger, table_name(relid)), 0, NULL, NULL,
				  SPI_OK_UTILITY);
	return true;
}

/*
 * effect.require_fence(target, job_key) -> void
 *		Statement triggers on the table and on each of its partitions as of now.
 *		Asking again replaces the job.  Errors: 22004, 22023, 42501 (not the
 *		owner), 42809 (a lone partition, a view, a foreign table).
 */
Datum
effect_require_fence(PG_FUNCTION_ARGS)
{
	Oid			relid = table_arg(fcinfo, 0);
	char	   *job_key = arg_text_or_null(fcinfo, 1, "job_key", EFFECT_MAX_KEY);
	char	   *argument = job_key ? quote_literal_cstr(job_key) : pstrdup("");
	ListCell   *cell;

	refuse_read_only("effect.require_fence()");
	table_check_owner(relid);
	table_check_whole(relid);
	SPI_connect();
	foreach(cell, table_and_partitions(relid))
	{
		(void) table_drop_trigger(lfirst_oid(cell), FENCE_TRIGGER);
		table_execute(psprintf("CREATE TRIGGER " FENCE_TRIGGER
							   " BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s"
							   " FOR EACH STATEMENT EXECUTE FUNCTION effect.check_fence(%s)",
							   table_name(lfirst_oid(cell)), argument),
					  0, NULL, NULL, SPI_OK_UTILITY);
	}
	SPI_finish();
	PG_RETURN_VOID();
}

/*
 * effect.drop_fence(target) -> void
 *		Errors: 22004, 42501, 42704 (there is none).
 */
Datum
effect_drop_fence(PG_FUNCTION_ARGS)
{
	Oid			relid = table_arg(fcinfo, 0);
	bool		found = false;
	ListCell   *cell;

	refuse_read_only("effect.drop_fence()");
	table_check_owner(relid);
	SPI_connect();
	foreach(cell, table_and_partitions(relid))
		found |= table_drop_trigger(lfirst_oid(cell), FENCE_TRIGGER);
	SPI_finish();
	if (!found)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" does not require a fence", get_rel_name(relid))));
	PG_RETURN_VOID();
}

/*
 * effect.keep_token_monotonic(target, token_column) -> void
 *		A row trigger, ENABLE ALWAYS, so that replicated writes meet it too.
 *		Errors: 22004, 42501, 42703, 42804 (no integer column), 42809.
 */
Datum
effect_keep_token_monotonic(PG_FUNCTION_ARGS)
{
	Oid			relid = table_arg(fcinfo, 0);
	char	   *column;
	Oid			type;

	if (PG_ARGISNULL(1))
		arg_missing("token_column");
	column = NameStr(*PG_GETARG_NAME(1));
	refuse_read_only("effect.keep_token_monotonic()");
	table_check_owner(relid);
	type = get_atttype(relid, table_column(relid, column, "Name a column of the target, in its exact spelling."));
	if (type != INT8OID && type != INT4OID && type != INT2OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s", column, format_type_be(type)),
				 errhint("A fencing token is kept in a bigint column.")));
	LockRelationOid(relid, ShareRowExclusiveLock);
	SPI_connect();
	(void) table_drop_trigger(relid, TOKEN_TRIGGER);
	table_execute(psprintf("CREATE TRIGGER " TOKEN_TRIGGER " BEFORE UPDATE ON %s"
						   " FOR EACH ROW EXECUTE FUNCTION effect.check_token_monotonic(%s)",
						   table_name(relid), quote_literal_cstr(column)),
				  0, NULL, NULL, SPI_OK_UTILITY);
	table_execute(psprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER " TOKEN_TRIGGER, table_name(relid)),
				  0, NULL, NULL, SPI_OK_UTILITY);
	SPI_finish();
	PG_RETURN_VOID();
}

/* Both trigger functions are for triggers only. */
static TriggerData *
table_trigger_data(FunctionCallInfo fcinfo, const char *name)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("%s can only be called as a trigger", name)));
	return (TriggerData *) fcinfo->context;
}

/* effect.check_fence(): LE007 in a transaction without a fence (for that job). */
Datum
effect_check_fence(PG_FUNCTION_ARGS)
{
	TriggerData *data = table_trigger_data(fcinfo, "effect.check_fence()");
	const char *job_key = data->tg_trigger->tgnargs > 0 ? data->tg_trigger->tgargs[0] : NULL;

	if (fence_taken(job_key))
		return PointerGetDatum(NULL);
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_NO_FENCE),
			 errmsg("table \"%s\" takes no write without a fence",
					RelationGetRelationName(data->tg_relation)),
			 job_key ? errdetail("It requires a fence of job \"%s\".", job_key) : 0,
			 errhint("Call effect.fence(job_key, fencing_token) in this transaction first. "
					 "A fence ends with its transaction or savepoint: after COMMIT, "
					 "or when an EXCEPTION block has caught, fence again.")));
	pg_unreachable();
}

/* The token that a row carries; false: NULL. */
static bool
table_row_token(HeapTuple row, TupleDesc desc, AttrNumber column, int64 *token)
{
	bool		isnull;
	Datum		value = heap_getattr(row, column, desc, &isnull);

	if (isnull)
		return false;
	switch (TupleDescAttr(desc, column - 1)->atttypid)
	{
		case INT2OID:
			*token = DatumGetInt16(value);
			break;
		case INT4OID:
			*token = DatumGetInt32(value);
			break;
		default:
			*token = DatumGetInt64(value);
			break;
	}
	return true;
}

/* effect.check_token_monotonic(): LE001 where a row's token would go down. */
Datum
effect_check_token_monotonic(PG_FUNCTION_ARGS)
{
	TriggerData *data = table_trigger_data(fcinfo, "effect.check_token_monotonic()");
	TupleDesc	desc = RelationGetDescr(data->tg_relation);
	AttrNumber	column = table_column(RelationGetRelid(data->tg_relation),
									  data->tg_trigger->tgargs[0],
									  "Call effect.keep_token_monotonic() again for the column's new name.");
	int64		old_token;
	int64		new_token = 0;
	bool		has_new;

	has_new = table_row_token(data->tg_newtuple, desc, column, &new_token);
	if (!table_row_token(data->tg_trigtuple, desc, column, &old_token) ||
		(has_new && new_token >= old_token))
		return PointerGetDatum(data->tg_newtuple);
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_FENCED),
			 errmsg("fenced: a row of \"%s\" carries token " INT64_FORMAT,
					RelationGetRelationName(data->tg_relation), old_token),
			 has_new ? errdetail("The write came under token " INT64_FORMAT ".", new_token)
			 : errdetail("The write would clear it."),
			 errhint("Stop. A later run has written this row.")));
	pg_unreachable();
}
