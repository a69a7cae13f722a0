CREATE TABLE withdrawals (
  task TEXT NOT NULL,
  owner TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_withdrawals PRIMARY KEY (task, owner),
  CONSTRAINT fk_withdrawals_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID
