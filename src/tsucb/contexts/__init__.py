"""Contexts as applications have them, turned into the numbers that models take.

| module | what it does |
|---|---|
| `values` | reads single values: numbers, categories, gaps |
| `vocabulary`, `encoding` | dictionaries and tables as vectors; columns are learned as they come |
| `hashing` | the same as rows of hashed columns, for `HashedLinear` |
| `transformers` | scikit-learn's transformers on single contexts |
| `readers` | one reader for every kind of agent, behind one interface |
"""
