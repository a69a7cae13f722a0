"""The history of the tables, one file of statements for each kind of database and version."""
