"""Full-text search: exact substrings of what a trace says, in any language, by an index of our own beside the tables.

`grams` cuts texts into grams, `texts` says what of each row is searched, `query` parses what a person types, `segments` reads the
index and `found` combines all of it with the filters of a list. traces_app.maintenance.search_index writes the index.
`segments` has the format. GIN on an array of hashed grams takes six times the CPU to write and ten times the space.
"""
