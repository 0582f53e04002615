/*
 * args.c
 *	  Arguments in, enum values out: the checks every call shares.
 *
 * A NULL where a value is needed raises 22004, a blank, over-long or absurd
 * one 22023, and nothing has been locked or written by then.
 *
 * What a backend remembers here is small, of a fixed size, and only of the
 * catalogs: the values of enum labels and the row types of our functions.  Each
 * is forgotten when a row of its catalog changes.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_enum.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "effect.h"

/* An argument that is needed is NULL. */
void
arg_missing(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be NULL", name)));
	pg_unreachable();
}

/* Blank or over-long text: 22023. */
void
arg_check_text(const char *value, const char *name, int max_bytes)
{
	if (value[strspn(value, " \t\r\n\v\f")] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be blank", name)));
	if (strlen(value) > max_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", name),
				 errdetail("It has %zu bytes; at most %d are allowed.", strlen(value), max_bytes)));
}

/* Text that is needed: NULL raises 22004, blank or over-long 22023. */
char *
arg_text(FunctionCallInfo fcinfo, int n, const char *name, int max_bytes)
{
	if (PG_ARGISNULL(n))
		arg_missing(name);
	return arg_text_or_null(fcinfo, n, name, max_bytes);
}

char *
arg_text_or_null(FunctionCallInfo fcinfo, int n, const char *name, int max_bytes)
{
	char	   *value;

	if (PG_ARGISNULL(n))
		return NULL;
	value = text_to_cstring(PG_GETARG_TEXT_PP(n));
	arg_check_text(value, name, max_bytes);
	return value;
}

/* A fencing token: NULL raises 22004, zero and below 22023. */
int64
arg_token(FunctionCallInfo fcinfo, int n)
{
	int64		token;

	if (PG_ARGISNULL(n))
		arg_missing("fencing_token");
	token = PG_GETARG_INT64(n);
	if (token <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fencing_token must be positive, not " INT64_FORMAT, token),
				 errhint("Pass the fencing_token that the claim returned.")));
	return token;
}

/* A document of inputs, evidence or an answer; NULL where there is none. */
Jsonb *
arg_jsonb(FunctionCallInfo fcinfo, int n, const char *name)
{
	Jsonb	   *value;

	if (PG_ARGISNULL(n))
		return NULL;
	value = PG_GETARG_JSONB_P(n);
	arg_check_jsonb(value, name);
	return value;
}

void
arg_check_jsonb(Jsonb *value, const char *name)
{
	if (VARSIZE(value) > EFFECT_MAX_BODY)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s is too large", name),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   (size_t) VARSIZE(value), EFFECT_MAX_BODY),
				 errhint("Store the body elsewhere and pass its digest or address.")));
}

/* A document of our own making. */
Jsonb *
jsonb_from_text(const char *json)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
}

/* A uuid that is needed. */
pg_uuid_t *
arg_uuid(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		arg_missing(name);
	return PG_GETARG_UUID_P(n);
}

/* The label of an enum argument that is needed. */
char *
arg_enum(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		arg_missing(name);
	return DatumGetCString(DirectFunctionCall1(enum_out, PG_GETARG_DATUM(n)));
}

/* Enum values, and row types of functions, that were looked up lately */
#define ARG_MAX_ENUMS	32
#define ARG_MAX_TYPES	16

typedef struct EnumValue
{
	Oid			type;
	Oid			value;
	NameData	label;
} EnumValue;

typedef struct ResultType
{
	Oid			function;
	TupleDesc	desc;
} ResultType;

static EnumValue arg_enums[ARG_MAX_ENUMS];
static ResultType arg_types[ARG_MAX_TYPES];
static int	arg_nenums = 0;
static int	arg_ntypes = 0;
static bool arg_types_stale = false;	/* freed at the next look, not under anyone */

static void
arg_forget_enums(Datum arg, int cache, uint32 hash)
{
	arg_nenums = 0;
}

static void
arg_forget_types(Datum arg, int cache, uint32 hash)
{
	arg_types_stale = true;
}

static void
arg_listen(void)
{
	static bool listens = false;

	if (listens)
		return;
	CacheRegisterSyscacheCallback(ENUMTYPOIDNAME, arg_forget_enums, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, arg_forget_types, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, arg_forget_types, (Datum) 0);
	listens = true;
}

/*
 * call_result_type
 *		The row type that the function called returns, blessed.
 */
TupleDesc
call_result_type(FunctionCallInfo fcinfo)
{
	Oid			function = fcinfo->flinfo->fn_oid;
	TupleDesc	desc;
	MemoryContext caller;

	arg_listen();
	for (; arg_types_stale && arg_ntypes > 0; arg_ntypes--)
		FreeTupleDesc(arg_types[arg_ntypes - 1].desc);
	arg_types_stale = false;
	for (int i = 0; i < arg_ntypes; i++)
		if (arg_types[i].function == function)
			return arg_types[i].desc;
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);
	if (arg_ntypes == ARG_MAX_TYPES || arg_types_stale)
		return desc;
	caller = MemoryContextSwitchTo(TopMemoryContext);
	arg_types[arg_ntypes].function = function;
	arg_types[arg_ntypes].desc = CreateTupleDescCopy(desc);
	MemoryContextSwitchTo(caller);
	return arg_types[arg_ntypes++].desc;
}

/* As the catalog has it now. */
static Oid
enum_look_up(Oid type, const char *label)
{
	HeapTuple	tuple = SearchSysCache2(ENUMTYPOIDNAME, ObjectIdGetDatum(type), CStringGetDatum(label));
	Oid			value;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "type %u has no label \"%s\"", type, label);
	value = ((Form_pg_enum) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return value;
}

/* The value of an enum type that has this label. */
Datum
enum_datum(Oid type, const char *label)
{
	EnumValue  *found;

	arg_listen();
	for (int i = 0; i < arg_nenums; i++)
		if (arg_enums[i].type == type && strcmp(NameStr(arg_enums[i].label), label) == 0)
			return ObjectIdGetDatum(arg_enums[i].value);
	if (arg_nenums == ARG_MAX_ENUMS)
		arg_nenums = 0;
	found = &arg_enums[arg_nenums];
	found->value = enum_look_up(type, label);
	found->type = type;
	namestrcpy(&found->label, label);
	arg_nenums++;
	return ObjectIdGetDatum(found->value);
}

/*
 * arg_array
 *		The elements of an array that is needed: at least one, none of them NULL
 *		(22004), and no more than EFFECT_MAX_BATCH (54000).
 */
Datum *
arg_array(FunctionCallInfo fcinfo, int argument, const char *name, int *n)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *nulls;
	int16		len;
	bool		byval;
	char		align;

	if (PG_ARGISNULL(argument))
		arg_missing(name);
	array = PG_GETARG_ARRAYTYPE_P(argument);
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &elements, &nulls, n);
	if (*n == 0 || ARR_NDIM(array) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be an array of one dimension with at least one element", name)));
	if (*n > EFFECT_MAX_BATCH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s has %d elements; at most %d are allowed", name, *n, EFFECT_MAX_BATCH)));
	for (int i = 0; i < *n; i++)
		if (nulls[i])
			arg_missing(psprintf("element %d of %s", i + 1, name));
	return elements;
}

/* An array of text that is needed, each element checked as arg_text() does. */
char **
arg_text_array(FunctionCallInfo fcinfo, int argument, const char *name, int max_bytes, int *n)
{
	Datum	   *elements = arg_array(fcinfo, argument, name, n);
	char	  **texts = palloc(*n * sizeof(char *));

	for (int i = 0; i < *n; i++)
	{
		texts[i] = TextDatumGetCString(elements[i]);
		arg_check_text(texts[i], psprintf("element %d of %s", i + 1, name), max_bytes);
	}
	return texts;
}

/* In recovery and in a READ ONLY transaction say so (25006), before any lock. */
void
refuse_read_only(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
	PreventCommandIfParallelMode(function);
}

/*
 * begin_writing
 *		First step, after its arguments, of every function that writes or locks
 *		rows of ours: refuse where nothing can be written, then make sure that
 *		tokens are counted where we are, and write down what was counted so far.
 */
void
begin_writing(const char *function)
{
	refuse_read_only(function);
	cluster_check();
	stats_flush_if_due();
}
