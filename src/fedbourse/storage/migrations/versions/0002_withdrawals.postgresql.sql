CREATE TABLE withdrawals (
  task TEXT COLLATE "C" NOT NULL,
  owner TEXT COLLATE "C" NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_withdrawals PRIMARY KEY (task, owner),
  CONSTRAINT fk_withdrawals_task FOREIGN KEY(task) REFERENCES tasks (id)
)
