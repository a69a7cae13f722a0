CREATE TABLE withdrawals (
  task TEXT NOT NULL,
  owner TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_withdrawals PRIMARY KEY (task, owner),
  CONSTRAINT fk_withdrawals_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

CREATE INDEX ix_withdrawals_owner ON withdrawals (owner)

CREATE INDEX ix_interests_owner ON interests (owner)

CREATE TABLE ended_sessions (
  id TEXT NOT NULL,
  expires_ms BIGINT NOT NULL,
  CONSTRAINT pk_ended_sessions PRIMARY KEY (id)
)
 WITHOUT ROWID

CREATE INDEX ix_ended_sessions_expires_ms ON ended_sessions (expires_ms)
