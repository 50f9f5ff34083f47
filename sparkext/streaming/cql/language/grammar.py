"""The grammar of CQL, in the notation of lark; `docs/cql.md` shows it."""

from sparkext.streaming.cql.language.unsupported import KEYED, WORDS

RESERVED = (
    *("all", "and", "as", "between", "case", "distinct", "else", "end", "except", "from", "group", "having", "in"),
    *("inner", "intersect", "is", "join", "like", "not", "null", "on", "or", "register", "rlike", "select", "then"),
    *("union", "when", "where"),
)
"""Words that are not names unless they are quoted."""

GRAMMAR = r"""
start: statement (";" statement)* ";"?

statement: _REGISTER _STREAM name "(" stream_column ("," stream_column)* ")"   -> stream
         | _REGISTER _QUERY name to_stream                                     -> stream_query
         | _REGISTER _QUERY name relation                                      -> relation_query
         | _REGISTER _RECURSIVE _QUERY name relation                           -> recursive_query

stream_column: name name type_digits? not_null?
type_digits: "(" INTEGER ("," INTEGER)? ")"
not_null: _NOT _NULL

to_stream: stream_operator period? "(" relation ")" delay?
!stream_operator: ISTREAM | DSTREAM | RSTREAM
period: "[" duration "]"
delay: "<" _NOW ">"        -> epsilon
     | "<" duration ">"    -> delay

?relation: intersection
         | relation _UNION all? intersection    -> union
         | relation _EXCEPT all? intersection   -> except_
?intersection: primary
             | intersection _INTERSECT all? primary   -> intersect
?primary: select
        | "(" relation ")"
all: _ALL

select: _SELECT distinct? items _FROM sources where? group? having?
distinct: _DISTINCT
items: item ("," item)*
item: "*"                 -> all_columns
    | name "." "*"        -> columns_of
    | expr alias?         -> column
sources: source (("," source) | joined)*
joined: _INNER? _JOIN source _ON expr
source: name window? alias?
?alias: _AS name
      | NAME     -> name
      | QUOTED   -> name
where: _WHERE expr
group: _GROUP _BY expr ("," expr)*
having: _HAVING expr

window: "[" _NOW "]"                                                       -> now
      | "[" _RANGE duration (_SLIDE duration)? "]"                         -> range
      | "[" _RANGE? _UNBOUNDED "]"                                         -> unbounded
      | "[" _ROWS INTEGER (_SLIDE INTEGER)? "]"                            -> rows
      | "[" _PARTITION _BY qualified ("," qualified)* _ROWS INTEGER "]"    -> partition_rows
duration: INTEGER name

?expr: conjunction
     | expr _OR conjunction          -> or_
?conjunction: negation
            | conjunction _AND negation   -> and_
?negation: predicate
         | _NOT negation             -> not_
?predicate: sum
          | sum comparison sum                         -> compared
          | sum _IS _NULL                              -> is_null
          | sum _IS _NOT _NULL                         -> is_not_null
          | sum _BETWEEN sum _AND sum                  -> between
          | sum _NOT _BETWEEN sum _AND sum             -> not_between
          | sum _IN "(" expr ("," expr)* ")"           -> in_
          | sum _NOT _IN "(" expr ("," expr)* ")"      -> not_in
          | sum _LIKE sum                              -> like
          | sum _NOT _LIKE sum                         -> not_like
          | sum _RLIKE sum                             -> rlike
          | sum _NOT _RLIKE sum                        -> not_rlike
!comparison: "=" | "<=>" | "<>" | "!=" | "<=" | ">=" | "<" | ">"
?sum: product
    | sum "+" product   -> plus
    | sum "-" product   -> minus
?product: signed
        | product "*" signed   -> times
        | product "/" signed   -> over
        | product "%" signed   -> modulo
?signed: atom
       | "-" signed     -> negate
       | "+" signed     -> same
?atom: literal
     | name "(" "*" ")"                                -> call_star
     | name "(" _DISTINCT expr ")"                     -> call_distinct
     | name "(" (expr ("," expr)*)? ")"                -> call
     | _CASE branch+ otherwise? _END                   -> case
     | _CAST "(" expr _AS name type_digits? ")"        -> cast
     | qualified
     | "(" expr ")"
branch: _WHEN expr _THEN expr
otherwise: _ELSE expr
qualified: name ("." name)?
literal: INTEGER        -> integer
       | DECIMAL        -> double
       | TEXT           -> text
       | TRUE           -> true
       | FALSE          -> false
       | _NULL          -> null
       | _DATE TEXT     -> date
       | _TIMESTAMP TEXT  -> timestamp

name: NAME | SQL_WORD | QUOTED

_REGISTER.2: /register\b/i
_STREAM.2: /stream\b/i
_QUERY.2: /query\b/i
_RECURSIVE.2: /recursive\b/i
ISTREAM.2: /istream\b/i
DSTREAM.2: /dstream\b/i
RSTREAM.2: /rstream\b/i
_NOW.2: /now\b/i
_UNION.2: /union\b/i
_EXCEPT.2: /except\b/i
_INTERSECT.2: /intersect\b/i
_ALL.2: /all\b/i
_SELECT.2: /select\b/i
_DISTINCT.2: /distinct\b/i
_FROM.2: /from\b/i
_WHERE.2: /where\b/i
_GROUP.2: /group\b/i
_BY.2: /by\b/i
_HAVING.2: /having\b/i
_INNER.2: /inner\b/i
_JOIN.2: /join\b/i
_ON.2: /on\b/i
_AS.2: /as\b/i
_RANGE.2: /range\b/i
_SLIDE.2: /slide\b/i
_UNBOUNDED.2: /unbounded\b/i
_ROWS.2: /rows\b/i
_PARTITION.2: /partition\b/i
_OR.2: /or\b/i
_AND.2: /and\b/i
_NOT.2: /not\b/i
_IS.2: /is\b/i
_NULL.2: /null\b/i
_BETWEEN.2: /between\b/i
_IN.2: /in\b/i
_LIKE.2: /like\b/i
_RLIKE.2: /rlike\b/i
_CASE.2: /case\b/i
_WHEN.2: /when\b/i
_THEN.2: /then\b/i
_ELSE.2: /else\b/i
_END.2: /end\b/i
_CAST.2: /cast\b/i
TRUE.2: /true\b/i
FALSE.2: /false\b/i
_DATE.3: /date(?=\s*')/i
_TIMESTAMP.3: /timestamp(?=\s*')/i
NAME: /(?!(?:RESERVED|WORDS)\b)[A-Za-z_][A-Za-z_0-9]*/i
SQL_WORD: /(?!KEYED)(?:WORDS)\b/i
QUOTED: /`[^`]+`/ | /"[^"]+"/
DECIMAL: /(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+/
INTEGER: /\d+/
TEXT: /'([^']|'')*'/

COMMENT: /--[^\n]*/
%import common.WS
%ignore WS
%ignore COMMENT
"""
for _part, _pattern in (("RESERVED", "|".join(RESERVED)), ("WORDS", "|".join(WORDS)), ("KEYED", KEYED)):
    GRAMMAR = GRAMMAR.replace(_part, _pattern)
