"""Decides whether a statement only reads, by the plan that Spark makes of it.

Spark's parser says what kind of statement it is, and the analysed plan says what a query does: comments, quotes and spaces in the text do
not matter. A query may contain only operators that read; an operator that is not listed, such as one that starts a program, is refused.
Functions that reach outside the tables are removed from the session, so that no text can name them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from polydomo.errors import CallFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_ONLY = "only queries are allowed: SELECT, WITH, VALUES, FROM, TABLE, DESCRIBE, SHOW, EXPLAIN"
MAX_NODES: Final = 10_000  # of a plan

# Functions that call methods of the JVM, open files or addresses that their arguments name, or reveal paths.
REACH_OUTSIDE: Final = frozenset(
    "reflect java_method try_reflect input_file_name input_file_block_start input_file_block_length "
    "from_xml schema_of_xml from_protobuf to_protobuf from_avro to_avro schema_of_avro "
    "xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string".split()
)
# Statements other than queries. None of them changes anything or runs a query.
STATEMENTS: Final = frozenset(
    "DescribeColumn DescribeFunction DescribeNamespace DescribeQueryCommand DescribeRelation DescribeRelationJsonCommand "
    "ShowCatalogsCommand ShowCollationsCommand ShowColumns ShowCreateTable ShowCurrentNamespaceCommand ShowFunctions "
    "ShowNamespaces ShowNamespacesCommand ShowPartitions ShowTableProperties ShowTables ShowTablesExtended ShowViews".split()
)
EXPLAIN: Final = "ExplainCommand"
# Spark runs these while it analyses them, so EXPLAIN would run them too.
RUN_BY_ANALYSIS: Final = frozenset({"CompoundBody", "UnresolvedExecuteImmediate", "ExecuteImmediateQuery"})
VIEW: Final = "View"  # its plan is not examined: the operator registered it
# Tables of the catalog. A relation without such an entry was named by its path.
TABLES: Final = {"LogicalRelation": "catalogTable", "DataSourceV2Relation": "identifier"}
NO_PATHS = "a path in place of a table name is not allowed: use a table or a view"
METADATA: Final = (
    ",_metadata#"  # the hidden column of a table of files, as Spark writes it with its number: it has the paths
)
NO_METADATA = "the hidden column _metadata is not available: it shows the paths of files"
OPERATORS: Final = frozenset(
    "Aggregate AsOfJoin CTERelationDef CTERelationRef Deduplicate Distinct EmptyRelation Except Expand Filter Generate "
    "GlobalLimit HiveTableRelation "
    "InlineTable Intersect Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation PipeOperator Project Range "
    "RebalancePartitions Repartition RepartitionByExpression ResolvedHint ResolvedInlineTable Sample Sort SQLFunctionNode Subquery "
    "SubqueryAlias Tail Transpose Union UnionLoop UnionLoopRef Unpivot Window View WithCTE WithWindowDefinition".split()
)


class Guard:
    """Read-only access to one session."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        session: Any = spark._jsparkSession
        self._state: Any = session.sessionState()
        spark.conf.set("spark.sql.runSQLOnFiles", "false")
        # otherwise the parser replaces ${env:NAME}, ${system:NAME} and ${spark.NAME} in the text of a statement
        spark.conf.set("spark.sql.variable.substitute", "false")
        registry = self._state.functionRegistry()
        for function in list(items(registry.listFunction())):
            if function.funcName() in REACH_OUTSIDE:
                registry.dropFunction(function)

    def ask(self, sql: str, args: "dict[str, Any] | None") -> "DataFrame":
        """The result of a statement that only reads; computed when it is read. Raises CallFailed, or Spark's error."""
        is_query = self._check_statement(sql)
        frame = self._spark.sql(sql, args=args)
        if is_query:
            java_frame: Any = frame._jdf
            check_plan(java_frame.queryExecution().analyzed())
        return frame

    def _check_statement(self, sql: str) -> bool:
        """Spark runs a statement that is not a query as soon as it is given, so this decides before. Returns whether it is a query."""
        parser = self._state.sqlParser()
        statement = parser.parsePlan(sql)  # an error here is a syntax error
        name = name_of(statement)
        if name in STATEMENTS:
            return False
        if name == EXPLAIN:
            for node in nodes(statement.logicalPlan(), parsed=True):
                if name_of(node) in RUN_BY_ANALYSIS:
                    raise CallFailed("read-only", READ_ONLY)
            return False
        try:
            parser.parseQuery(sql)
        except Exception:
            raise CallFailed("read-only", READ_ONLY) from None
        return True


def check_plan(plan: Any) -> None:
    """Raises CallFailed if a query does more than read tables and views."""
    for node in nodes(plan):
        name = name_of(node)
        if name in TABLES:
            if not getattr(node, TABLES[name])().isDefined():
                raise CallFailed("read-only", NO_PATHS)
            if METADATA in node.output().mkString(",", ",", ""):
                raise CallFailed("read-only", NO_METADATA)
        elif name not in OPERATORS:
            raise CallFailed("read-only", f"{READ_ONLY}; this query contains {name}")


def nodes(plan: Any, parsed: bool = False) -> Iterator[Any]:
    """The operators of a plan, those of its subqueries included. The plan of a view is not followed."""
    waiting = [plan]
    count = 0
    while waiting:
        node = waiting.pop()
        count += 1
        if count > MAX_NODES:
            raise CallFailed("bad-query", f"the query has more than {MAX_NODES:,} operators; split it")
        yield node
        if name_of(node) == VIEW:
            continue
        waiting += items(node.children())
        waiting += items(node.innerChildren() if parsed else node.subqueries())


def name_of(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala collection."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
