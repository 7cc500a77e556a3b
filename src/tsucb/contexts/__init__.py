"""Turn the contexts of an application into the numbers that models take.

| module | what it does |
|---|---|
| `values` | reads single values: numbers, categories, missing values |
| `vocabulary`, `encoding` | dictionaries and tables to vectors; new features get new columns |
| `hashing` | dictionaries and tables to rows of hashed columns, for `HashedLinear` |
| `vectors` | vectors, declared features, and contexts that a transformer reads |
| `transformers` | scikit-learn's transformers on single contexts |
| `readers` | the reader of an agent: an encoder for contexts, perhaps one for arms |
"""
