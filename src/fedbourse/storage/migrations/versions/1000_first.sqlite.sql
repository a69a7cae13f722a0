CREATE TABLE accounts (
  id TEXT NOT NULL,
  balance BIGINT NOT NULL,
  CONSTRAINT pk_accounts PRIMARY KEY (id),
  CONSTRAINT ck_accounts_overdraft CHECK (balance >= 0 OR id = 'outside'),
  CONSTRAINT ck_accounts_range CHECK (balance >= -9223372036854775807 AND balance <= 9223372036854775807)
)
 WITHOUT ROWID

CREATE TABLE devices (
  id TEXT NOT NULL,
  owner TEXT NOT NULL,
  public_key TEXT NOT NULL,
  enrolled_ms BIGINT NOT NULL,
  retired_ms BIGINT,
  CONSTRAINT pk_devices PRIMARY KEY (id)
)

CREATE UNIQUE INDEX ix_devices_live ON devices (owner) WHERE retired_ms IS NULL

CREATE TABLE ended_sessions (
  id TEXT NOT NULL,
  expires_ms BIGINT NOT NULL,
  CONSTRAINT pk_ended_sessions PRIMARY KEY (id)
)
 WITHOUT ROWID

CREATE INDEX ix_ended_sessions_expires_ms ON ended_sessions (expires_ms)

CREATE TABLE enrolments (
  hash TEXT NOT NULL,
  owner TEXT NOT NULL,
  expires_ms BIGINT NOT NULL,
  used_ms BIGINT,
  CONSTRAINT pk_enrolments PRIMARY KEY (hash)
)

CREATE TABLE rotations (
  old TEXT NOT NULL,
  new TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  old_signature TEXT NOT NULL,
  new_signature TEXT NOT NULL,
  CONSTRAINT pk_rotations PRIMARY KEY (old),
  CONSTRAINT ck_rotations_keys CHECK (old <> new),
  CONSTRAINT uq_rotations_new UNIQUE (new)
)

CREATE TABLE nonces (
  device TEXT NOT NULL,
  nonce TEXT NOT NULL,
  expires_ms BIGINT NOT NULL,
  CONSTRAINT pk_nonces PRIMARY KEY (device, nonce)
)
 WITHOUT ROWID

CREATE INDEX ix_nonces_expires_ms ON nonces (expires_ms)

CREATE TABLE payouts (
  id TEXT NOT NULL,
  party TEXT NOT NULL,
  amount BIGINT NOT NULL,
  destination TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  state TEXT NOT NULL,
  changed_ms BIGINT NOT NULL,
  note TEXT NOT NULL,
  steps BIGINT NOT NULL,
  attempts BIGINT NOT NULL,
  trying BOOLEAN NOT NULL,
  due_ms BIGINT NOT NULL,
  CONSTRAINT pk_payouts PRIMARY KEY (id),
  CONSTRAINT ck_payouts_amount CHECK (amount > 0),
  CONSTRAINT ck_payouts_state CHECK (state IN ('requested', 'sent', 'confirmed', 'failed', 'returned'))
)
 WITHOUT ROWID

CREATE INDEX ix_payouts_open ON payouts (id) WHERE state IN ('requested', 'failed', 'sent')

CREATE INDEX ix_payouts_party_id ON payouts (party, id)

CREATE INDEX ix_payouts_waiting ON payouts (id) WHERE state IN ('requested', 'failed')

CREATE TABLE responses (
  caller TEXT NOT NULL,
  "key" TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  status BIGINT,
  body TEXT,
  expires_ms BIGINT NOT NULL,
  CONSTRAINT pk_responses PRIMARY KEY (caller, "key")
)

CREATE INDEX ix_responses_expires_ms ON responses (expires_ms)

CREATE TABLE tasks (
  id TEXT NOT NULL,
  buyer TEXT NOT NULL,
  card TEXT NOT NULL,
  state TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  deadline_ms BIGINT,
  interested BIGINT NOT NULL,
  reward BIGINT,
  tick BIGINT NOT NULL,
  tick_ends_ms BIGINT,
  total_budget DOUBLE,
  totals TEXT NOT NULL,
  first_tick BIGINT NOT NULL,
  asked BIGINT NOT NULL,
  settled_tick BIGINT,
  offer TEXT NOT NULL,
  review_ends_ms BIGINT,
  round BIGINT NOT NULL,
  last_sequence BIGINT NOT NULL,
  last_hash TEXT NOT NULL,
  state_signature TEXT NOT NULL,
  words TEXT NOT NULL,
  promised BIGINT,
  CONSTRAINT pk_tasks PRIMARY KEY (id),
  CONSTRAINT ck_tasks_state CHECK (state IN ('draft', 'open', 'announced', 'settled', 'training', 'completed', 'cancelled')),
  CONSTRAINT ck_tasks_reward CHECK (reward >= 0)
)
 WITHOUT ROWID

CREATE INDEX ix_tasks_buyer_id ON tasks (buyer, id)

CREATE INDEX ix_tasks_state_id ON tasks (state, id)

CREATE TABLE tokens (
  id TEXT NOT NULL,
  hash TEXT NOT NULL,
  party TEXT NOT NULL,
  scopes TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT,
  revoked_ms BIGINT,
  CONSTRAINT pk_tokens PRIMARY KEY (id),
  CONSTRAINT uq_tokens_hash UNIQUE (hash)
)

CREATE TABLE transfers (
  sequence INTEGER NOT NULL,
  id TEXT NOT NULL,
  source TEXT NOT NULL,
  target TEXT NOT NULL,
  amount BIGINT NOT NULL,
  memo TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_transfers PRIMARY KEY (sequence),
  CONSTRAINT ck_transfers_amount CHECK (amount > 0),
  CONSTRAINT ck_transfers_accounts CHECK (source <> target),
  CONSTRAINT uq_transfers_id UNIQUE (id)
)

CREATE INDEX ix_transfers_source_sequence ON transfers (source, sequence)

CREATE INDEX ix_transfers_target_sequence ON transfers (target, sequence)

CREATE TABLE drifts (
  task TEXT NOT NULL,
  owner TEXT NOT NULL,
  answers BIGINT NOT NULL,
  squares DOUBLE NOT NULL,
  compared BIGINT NOT NULL,
  agreement DOUBLE NOT NULL,
  repeats BIGINT NOT NULL,
  last_vector TEXT NOT NULL,
  CONSTRAINT pk_drifts PRIMARY KEY (task, owner),
  CONSTRAINT ck_drifts_answers CHECK (answers >= 0),
  CONSTRAINT ck_drifts_squares CHECK (squares >= 0),
  CONSTRAINT fk_drifts_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

CREATE TABLE events (
  task TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  kind TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  body TEXT NOT NULL,
  previous TEXT NOT NULL,
  hash TEXT NOT NULL,
  CONSTRAINT pk_events PRIMARY KEY (task, sequence),
  CONSTRAINT ck_events_sequence CHECK (sequence >= 0),
  CONSTRAINT fk_events_task FOREIGN KEY(task) REFERENCES tasks (id)
)

CREATE TABLE exits (
  task TEXT NOT NULL,
  owner TEXT NOT NULL,
  tick BIGINT NOT NULL,
  reason TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_exits PRIMARY KEY (task, owner),
  CONSTRAINT ck_exits_reason CHECK (reason IN ('left', 'missed', 'declined', 'unsigned')),
  CONSTRAINT fk_exits_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

CREATE INDEX ix_exits_owner ON exits (owner)

CREATE TABLE openings (
  number BIGINT NOT NULL,
  task TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  CONSTRAINT pk_openings PRIMARY KEY (number),
  CONSTRAINT fk_openings_task FOREIGN KEY(task, sequence) REFERENCES events (task, sequence),
  CONSTRAINT uq_openings_task UNIQUE (task)
)
 WITHOUT ROWID

CREATE TABLE interests (
  task TEXT NOT NULL,
  owner TEXT NOT NULL,
  value DOUBLE,
  salt TEXT NOT NULL,
  leaf TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  zero_from DOUBLE,
  CONSTRAINT pk_interests PRIMARY KEY (task, owner),
  CONSTRAINT fk_interests_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

CREATE INDEX ix_interests_owner ON interests (owner)

CREATE TABLE lines (
  task TEXT NOT NULL,
  owner TEXT NOT NULL,
  position BIGINT NOT NULL,
  budget DOUBLE,
  payment BIGINT NOT NULL,
  salt TEXT NOT NULL,
  leaf TEXT NOT NULL,
  state TEXT NOT NULL,
  signature TEXT,
  answered BIGINT NOT NULL,
  earned BIGINT NOT NULL,
  held BIGINT NOT NULL,
  CONSTRAINT pk_lines PRIMARY KEY (task, owner),
  CONSTRAINT ck_lines_state CHECK (state IN ('offered', 'signed', 'declined')),
  CONSTRAINT ck_lines_held CHECK (held >= 0 AND held <= earned),
  CONSTRAINT ck_lines_budget CHECK (budget >= 0),
  CONSTRAINT ck_lines_payment CHECK (payment >= 0),
  CONSTRAINT ck_lines_answered CHECK (answered >= 0),
  CONSTRAINT fk_lines_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

CREATE TABLE nodes (
  task TEXT NOT NULL,
  height BIGINT NOT NULL,
  position BIGINT NOT NULL,
  hash TEXT NOT NULL,
  CONSTRAINT pk_nodes PRIMARY KEY (task, height, position),
  CONSTRAINT fk_nodes_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

CREATE TABLE payout_steps (
  payout TEXT NOT NULL,
  number BIGINT NOT NULL,
  state TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  note TEXT NOT NULL,
  CONSTRAINT pk_payout_steps PRIMARY KEY (payout, number),
  CONSTRAINT ck_payout_steps_number CHECK (number >= 0),
  CONSTRAINT fk_payout_steps_payout FOREIGN KEY(payout) REFERENCES payouts (id)
)
 WITHOUT ROWID

CREATE TABLE replies (
  task TEXT NOT NULL,
  tick BIGINT NOT NULL,
  owner TEXT NOT NULL,
  budget DOUBLE,
  salt TEXT NOT NULL,
  leaf TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_replies PRIMARY KEY (task, tick, owner),
  CONSTRAINT ck_replies_budget CHECK (budget >= 0),
  CONSTRAINT fk_replies_task FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

CREATE INDEX ix_replies_task_owner ON replies (task, owner)

CREATE TABLE rounds (
  task TEXT NOT NULL,
  number BIGINT NOT NULL,
  model BLOB NOT NULL,
  model_hash TEXT NOT NULL,
  "query" TEXT NOT NULL,
  previous TEXT NOT NULL,
  opened_ms BIGINT NOT NULL,
  deadline_ms BIGINT NOT NULL,
  closed_ms BIGINT,
  answers BIGINT NOT NULL,
  signature TEXT NOT NULL,
  CONSTRAINT pk_rounds PRIMARY KEY (task, number),
  CONSTRAINT ck_rounds_number CHECK (number >= 0),
  CONSTRAINT fk_rounds_task FOREIGN KEY(task) REFERENCES tasks (id)
)

CREATE TABLE answers (
  task TEXT NOT NULL,
  round BIGINT NOT NULL,
  owner TEXT NOT NULL,
  vector BLOB,
  hash TEXT NOT NULL,
  receipt TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_answers PRIMARY KEY (task, round, owner),
  CONSTRAINT fk_answers_task FOREIGN KEY(task, round) REFERENCES rounds (task, number)
)

CREATE INDEX ix_answers_task_owner_round ON answers (task, owner, round)

CREATE TABLE refusals (
  task TEXT NOT NULL,
  round BIGINT NOT NULL,
  owner TEXT NOT NULL,
  reason TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  CONSTRAINT pk_refusals PRIMARY KEY (task, round, owner),
  CONSTRAINT fk_refusals_task FOREIGN KEY(task, round) REFERENCES rounds (task, number)
)
 WITHOUT ROWID

CREATE INDEX ix_refusals_task_owner ON refusals (task, owner)

CREATE TRIGGER transfers_move
AFTER INSERT ON transfers
BEGIN
  INSERT INTO accounts (id, balance) VALUES (NEW.source, 0) ON CONFLICT (id) DO NOTHING;
  INSERT INTO accounts (id, balance) VALUES (NEW.target, 0) ON CONFLICT (id) DO NOTHING;
  UPDATE accounts SET balance = balance - NEW.amount WHERE id = NEW.source;
  UPDATE accounts SET balance = balance + NEW.amount WHERE id = NEW.target;
END

CREATE TRIGGER events_follow
BEFORE INSERT ON events WHEN NEW.sequence > 0 AND NOT EXISTS (SELECT 1 FROM events
  WHERE task = NEW.task AND sequence = NEW.sequence - 1 AND hash = NEW.previous)
BEGIN
  SELECT RAISE(ABORT, 'an event must follow the one before it');
END

CREATE TRIGGER transfers_no_update
BEFORE UPDATE ON transfers
BEGIN
  SELECT RAISE(ABORT, 'a transfer is never changed');
END

CREATE TRIGGER transfers_no_delete
BEFORE DELETE ON transfers
BEGIN
  SELECT RAISE(ABORT, 'a transfer is never changed');
END

CREATE TRIGGER transfers_no_replace
BEFORE INSERT ON transfers WHEN EXISTS (SELECT 1 FROM transfers WHERE id = NEW.id OR sequence = NEW.sequence)
BEGIN
  SELECT RAISE(ABORT, 'a transfer is never changed');
END

CREATE TRIGGER events_no_update
BEFORE UPDATE ON events
BEGIN
  SELECT RAISE(ABORT, 'an event is never changed');
END

CREATE TRIGGER events_no_delete
BEFORE DELETE ON events
BEGIN
  SELECT RAISE(ABORT, 'an event is never changed');
END

CREATE TRIGGER events_no_replace
BEFORE INSERT ON events WHEN EXISTS (SELECT 1 FROM events WHERE task = NEW.task AND sequence = NEW.sequence)
BEGIN
  SELECT RAISE(ABORT, 'an event is never changed');
END

CREATE TRIGGER tasks_no_update
BEFORE UPDATE ON tasks WHEN NEW.id IS NOT OLD.id OR NEW.buyer IS NOT OLD.buyer OR NEW.card IS NOT OLD.card OR NEW.created_ms IS NOT OLD.created_ms OR NEW.words IS NOT OLD.words OR NEW.promised IS NOT OLD.promised
BEGIN
  SELECT RAISE(ABORT, 'a task''s card, buyer and time of making are never changed');
END

CREATE TRIGGER tasks_no_delete
BEFORE DELETE ON tasks
BEGIN
  SELECT RAISE(ABORT, 'a task''s card, buyer and time of making are never changed');
END

CREATE TRIGGER tasks_no_replace
BEFORE INSERT ON tasks WHEN EXISTS (SELECT 1 FROM tasks WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'a task''s card, buyer and time of making are never changed');
END

CREATE TRIGGER payouts_no_update
BEFORE UPDATE ON payouts WHEN NEW.id IS NOT OLD.id OR NEW.party IS NOT OLD.party OR NEW.amount IS NOT OLD.amount OR NEW.destination IS NOT OLD.destination OR NEW.at_ms IS NOT OLD.at_ms
BEGIN
  SELECT RAISE(ABORT, 'whose a pay-out is, how much, where to and when is never changed');
END

CREATE TRIGGER payouts_no_delete
BEFORE DELETE ON payouts
BEGIN
  SELECT RAISE(ABORT, 'whose a pay-out is, how much, where to and when is never changed');
END

CREATE TRIGGER payouts_no_replace
BEFORE INSERT ON payouts WHEN EXISTS (SELECT 1 FROM payouts WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'whose a pay-out is, how much, where to and when is never changed');
END

CREATE TRIGGER payout_steps_no_update
BEFORE UPDATE ON payout_steps
BEGIN
  SELECT RAISE(ABORT, 'a state that a pay-out had is never changed');
END

CREATE TRIGGER payout_steps_no_delete
BEFORE DELETE ON payout_steps
BEGIN
  SELECT RAISE(ABORT, 'a state that a pay-out had is never changed');
END

CREATE TRIGGER payout_steps_no_replace
BEFORE INSERT ON payout_steps WHEN EXISTS (SELECT 1 FROM payout_steps WHERE payout = NEW.payout AND number = NEW.number)
BEGIN
  SELECT RAISE(ABORT, 'a state that a pay-out had is never changed');
END
