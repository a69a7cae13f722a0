"""A market as a process: it starts with nothing, keeps its secrets, and ends when it is told to."""

import datetime
import http.client
import json
import os
import shlex
import signal
import socket
import sqlite3
import stat
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest import mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from uvicorn.protocols.http.h11_impl import H11Protocol

from cli.markets import (
    CARD,
    WAIT_S,
    Shell,
    command,
    new_token,
    paid_in,
    running_market,
    until,
)
from fedbourse.app import server as bootstrap_market
from fedbourse.app.http_server import Patient
from fedbourse.app.machine import write_private
from fedbourse.cli import main
from fedbourse.errors import Unreachable
from fedbourse.market.commands.access import hash_of
from fedbourse.market.service import Market
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.protocol.signatures import Request, sign_request


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    with running_market(tmp_path_factory.mktemp("serve") / "market") as running:
        yield running


def certificate(folder, name: str):
    """Make a certificate for this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / f"{name}.pem", folder / f"{name}-key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return pem, secret


def refused(capsys, *arguments: object) -> tuple[int, str]:
    served = AssertionError("it was to be refused, and would be served")
    with mock.patch.object(bootstrap_market, "_run", side_effect=served):
        code = main(["serve", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("fedbourse: ")
    return code, err


def test_everything_lies_in_one_folder_that_nobody_else_reads(market) -> None:
    names = {path.name for path in market.folder.iterdir()}
    assert {"market.db", "market.key", "operator.token", "payments", "serve.lock"} <= names
    for path in [market.folder, *market.folder.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_line_says_where_and_who_the_market_is(market) -> None:
    assert market.ready["pid"] == market.process.pid
    with Connection(market.url, market_key=market.ready["public_key"]) as connection:
        assert connection.check_market()["name"] == "fedbourse"
        assert connection.get("/v1/health") == {"status": "ok"}


def test_answers_do_not_say_which_server_made_them(market) -> None:
    host, port = market.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
    connection.request("GET", "/v1/health")
    assert connection.getresponse().getheader("server") is None
    connection.close()


def test_headers_without_end_are_cut_off(market) -> None:
    host, port = market.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as raw:
        raw.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 100_000)
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_a_second_server_on_one_folder_is_refused(market, capsys) -> None:
    code, sentence = refused(capsys, "--folder", market.folder, "--port", "0")
    assert code == 11
    assert "is being served from" in sentence


def test_a_port_in_use_is_named(market, capsys, tmp_path) -> None:
    port = market.url.rsplit(":", maxsplit=1)[1]
    code, sentence = refused(capsys, "--folder", tmp_path / "m", "--port", port)
    assert code == 11
    assert f"port {port} of 127.0.0.1 cannot be listened on: Address already in use" in sentence


def test_a_market_that_starts_again_is_the_same_and_its_secrets_stay_out_of_its_words(
    tmp_path,
) -> None:
    folder = tmp_path / "new" / "market"
    with running_market(folder, "--access-log") as first:
        secret = first.operator.read_text().strip()
        with Connection(first.url, token=secret) as connection:
            connection.get("/v1/health")
        first.process.send_signal(signal.SIGINT)
        out, err = first.process.communicate(timeout=WAIT_S)
        assert first.process.returncode == 0
        assert "/v1/health" in err
        assert secret not in out + err + json.dumps(first.ready)
    with running_market(folder) as again:
        assert again.ready["public_key"] == first.ready["public_key"]
        assert again.operator.read_text().strip() == secret
        with Connection(again.url, token=secret) as connection:
            assert connection.get("/v1/health") == {"status": "ok"}
        assert again.stop() == (0, "")


def test_a_crash_before_the_token_counts_leads_to_another_one(tmp_path, monkeypatch) -> None:
    from fedbourse.storage import SqlStore

    market = Market(SigningKey.generate())
    file = tmp_path / "operator.token"
    with SqlStore(f"sqlite:///{tmp_path / 'm.db'}") as store:
        real = write_private
        with monkeypatch.context() as patch:
            patch.setattr(bootstrap_market, "write_private", lambda *a: real(*a) or 1 / 0)
            with pytest.raises(ZeroDivisionError):
                bootstrap_market.operator_token(tmp_path, market, store)
        lost = file.read_text()
        assert bootstrap_market.operator_token(tmp_path, market, store) == file
        assert file.read_text() != lost
        with store.read() as tx:
            (token,) = tx.tokens(limit=9)
            assert tx.token_with(hash_of(file.read_text().strip())) == token
            assert tx.token_with(hash_of(lost.strip())) is None


def test_neither_a_token_that_was_taken_away_nor_a_lost_key_is_made_again(tmp_path, capsys) -> None:
    folder = tmp_path / "m"
    with running_market(folder) as first:
        first.operator.unlink()
    with running_market(folder) as again:
        assert again.ready["operator_token_file"] is None
        assert not (folder / "operator.token").exists()
    with running_market(folder, "--new-operator-token") as third:
        shell = Shell(capsys, third.url)
        assert len(shell.json("token", "list", token=third.operator)["tokens"]) == 2
    (folder / "market.key").unlink()
    code, sentence = refused(capsys, "--folder", folder, "--port", "0")
    assert code == 2
    assert "belongs to a market whose key is not in" in sentence


def test_the_market_speaks_tls_to_those_who_trust_its_certificate(tmp_path, capsys) -> None:
    pem, secret = certificate(tmp_path, "own")
    arguments = ["--tls-cert", pem, "--tls-key", secret, "--host", "localhost"]
    with running_market(tmp_path / "m", *arguments) as running:
        assert running.url.startswith("https://localhost:")
        with Connection(running.url, ca_file=str(pem)) as connection:
            assert connection.get("/v1/health") == {"status": "ok"}
        with (
            Connection(running.url, sleep=lambda _: None) as stranger,
            pytest.raises(Unreachable, match="does not respond"),
        ):
            stranger.get("/v1/health")


def test_a_connection_that_stays_open_does_not_hold_the_market_up(tmp_path) -> None:
    with running_market(tmp_path / "m") as running:
        host, port = running.url.removeprefix("http://").split(":")
        idle = socket.create_connection((host, int(port)), timeout=WAIT_S)
        idle.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(15) == b"HTTP/1.1 200 OK"
        code, err = running.stop()
        idle.close()
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--host", "0.0.0.0"], (2, "0.0.0.0 can be reached from elsewhere, so that it needs TLS")),
        (["--host", "market.example"], (2, "needs TLS")),
        (["--host", "999.1.1.1", "--behind-proxy"], (2, "is not an address of this machine")),
        (["--host", "a" * 70, "--behind-proxy"], (2, "is not an address of this machine")),
        (["--host", "203.0.113.7", "--behind-proxy"], (11, "cannot be listened on")),
        (["--workers", "2"], (2, "SQLite is served by one process; found 2 workers")),
        (["--workers", "0"], (2, "workers must be")),
        (["--port", "65536"], (2, "port must be between 0 and 65535; found 65536")),
        (["--port", "-1"], (2, "port must be")),
        (["--port", "1.5"], (2, "port must be a whole number")),
        (["--tls-cert", "absent.pem"], (2, "TLS needs a certificate and its key")),
        (["--tls-cert", "a.pem", "--tls-key", "b.pem"], (2, "a.pem cannot be read: No such file")),
        (["--database", "mysql://x"], (2, "a database is sqlite:///FILE or postgresql://")),
        (["--database", "sqlite:////absent/folder/x.db"], (5, "cannot be made")),
        (["--folder", "what?"], (2, "must not have a ? in its name")),
        (["--folder", "/dev/null/m"], (5, "the folder /dev/null/m cannot be made")),
    ],
)
def test_what_cannot_be_served_gets_one_sentence(
    capsys, tmp_path, monkeypatch, arguments, expected
) -> None:
    monkeypatch.chdir(tmp_path)
    found = refused(capsys, *arguments, *([] if "--port" in arguments else ["--port", "0"]))
    assert found[0] == expected[0]
    assert expected[1] in found[1]


def test_an_unreachable_database_is_named_without_its_password(capsys, tmp_path) -> None:
    url = "postgresql://market:s3cret@127.0.0.1:1/market"
    code, sentence = refused(capsys, "--folder", tmp_path, "--port", "0", "--database", url)
    assert code == 14
    assert "s3cret" not in sentence


def test_keys_that_do_not_fit_or_cannot_be_read_are_named(capsys, tmp_path) -> None:
    first, second = certificate(tmp_path, "one"), certificate(tmp_path, "two")
    (tmp_path / "text.pem").write_text("hello")
    for pem, secret in [(first[0], second[1]), (first[0], tmp_path / "text.pem"), (first[1],) * 2]:
        folder = ["--folder", tmp_path / "m", "--port", "0"]
        code, sentence = refused(capsys, *folder, "--tls-cert", pem, "--tls-key", secret)
        assert code == 2
        assert "must be a certificate and its key" in sentence


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked(capsys, tmp_path) -> None:
    pem, secret = certificate(tmp_path, "own")
    key = serialization.load_pem_private_key(secret.read_bytes(), None)
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    code, sentence = refused(capsys, "--folder", tmp_path, "--tls-cert", pem, "--tls-key", secret)
    assert code == 2
    assert "without a passphrase" in sentence


def test_a_folder_or_key_that_others_can_touch_is_refused(capsys, tmp_path) -> None:
    tmp_path.chmod(0o777)
    code, sentence = refused(capsys, "--folder", tmp_path, "--port", "0")
    assert code == 2
    assert "can be changed by others, mode 777; make it 700" in sentence
    tmp_path.chmod(0o700)
    SigningKey.generate().save(tmp_path / "market.key")
    (tmp_path / "market.key").chmod(0o644)
    code, sentence = refused(capsys, "--folder", tmp_path, "--port", "0")
    assert code == 2
    assert "can be read by others" in sentence


def test_whom_the_fund_pays_to_is_published_and_pinned(tmp_path, capsys, monkeypatch) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps(CARD))
    folder, pinned = tmp_path / "market", {}
    for text in ("the Town Library", "a school"):
        monkeypatch.setenv("FEDBOURSE_FUND_PAYS_TO", text)
        with running_market(folder) as market:
            shell = Shell(capsys, market.url)
            with Connection(market.url) as line:
                fund = line.get("/v1/market")["fund"]
                assert fund == {"account": "fund", "pays_to": text, "balance_micro": 0}
            if not pinned:
                acme = new_token(shell, market, "buyer:acme", tmp_path)
                paid_in(shell, market, acme, party="buyer:acme", credits="9", reference="first")
            task = shell.json("task", "create", card, token=acme)["task"]
            shell.json("task", "open", task, token=acme)
            pinned[task] = {"account": "fund", "pays_to": text}
            for each, fund in pinned.items():  # what was pinned stays
                assert shell.json("task", "show", each)["fund"] == fund


@pytest.mark.parametrize("text", ["", " ", "x" * 201, "a\x1bb"])
def test_whom_the_fund_pays_to_is_a_short_text(capsys, tmp_path, text) -> None:
    arguments = ["serve", "--folder", str(tmp_path / "m"), "--port", "0", f"--fund-pays-to={text}"]
    assert main(arguments) == 2
    assert "fund_pays_to must" in capsys.readouterr().err


def test_people_get_one_line(tmp_path) -> None:
    serve = command("serve", "--folder", tmp_path / "m", "--port", "0")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(serve, **pipes) as process:
        line = process.stdout.readline()
        process.terminate()
        out, err = process.communicate(timeout=WAIT_S)
    assert line.startswith("fedbourse market at http://127.0.0.1:")
    assert f"the operator's token is in {tmp_path / 'm' / 'operator.token'}" in line
    assert (process.returncode, out, err) == (0, "", "")


def workers(parent: int) -> set[int]:
    """Return the processes that serve: those that a process started with our code in them."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = set()
    for child in children:
        with suppress(FileNotFoundError):  # it ended meanwhile
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(int(child))
    return found


def test_several_workers_serve_one_port_and_none_outlives_the_first(postgresql, tmp_path) -> None:
    with (
        postgresql.database() as url,
        running_market(tmp_path / "m", "--database", url, "--workers", 2) as running,
        Connection(running.url, market_key=running.ready["public_key"]) as connection,
    ):
        pid = running.process.pid
        until(lambda: len(workers(pid)) == 2)
        connection.check_market()
        lost = min(workers(pid))
        os.kill(lost, signal.SIGKILL)
        until(lambda: len(workers(pid) - {lost}) == 2)
        assert connection.get("/v1/health") == {"status": "ok"}
        left = workers(pid)
        running.process.kill()
        running.process.wait(timeout=WAIT_S)
        until(lambda: not any(Path(f"/proc/{child}").exists() for child in left))
        assert not (tmp_path / "m" / "market.db").exists()


def test_workers_stop_when_they_are_told_to(postgresql, tmp_path) -> None:
    with (
        postgresql.database() as url,
        running_market(tmp_path / "m", "--database", url, "--workers", 2) as running,
    ):
        until(lambda: len(workers(running.process.pid)) == 2)
        left = workers(running.process.pid)
        assert running.stop() == (0, "")
        assert not any(Path(f"/proc/{child}").exists() for child in left)


def test_an_address_without_connections_is_forgotten() -> None:
    connections = [Patient.__new__(Patient) for _ in range(2)]
    below = mock.patch.multiple(
        H11Protocol, connection_made=mock.Mock(), connection_lost=mock.Mock()
    )
    with below:
        for each in connections:
            each.client, each.loop = ("192.0.2.1", 5), mock.Mock()
            each.transport = mock.Mock()
            each.connection_made(mock.Mock())
        connections[0].connection_lost(None)
        assert Patient.counts["192.0.2.1/32"] == Patient.counts["192.0.2.0/24"] == 1
        connections[1].connection_lost(None)
    assert not {"192.0.2.1/32", "192.0.2.0/24"} & set(Patient.counts)


def test_the_shell_of_these_tests_reaches_the_market(market, capsys) -> None:
    code, sentence = Shell(capsys, market.url).refused("task", "show", "0" * 24)
    assert (code, "Traceback" in sentence) == (10, False)
    assert os.getpid() != market.process.pid


def test_whoever_says_nothing_or_half_a_request_is_not_waited_for(tmp_path) -> None:
    with running_market(tmp_path / "m") as market:
        host, port = market.url.removeprefix("http://").split(":")
        with (
            socket.create_connection((host, int(port)), timeout=WAIT_S) as silent,
            socket.create_connection((host, int(port)), timeout=WAIT_S) as halfway,
            socket.create_connection((host, int(port)), timeout=WAIT_S) as second,
            socket.create_connection((host, int(port)), timeout=WAIT_S) as pipelined,
        ):
            whole, half = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1/health HTTP/1"
            halfway.sendall(half)
            second.sendall(whole)
            assert second.recv(4096).startswith(b"HTTP/1.1 200")
            second.sendall(half)  # it has been served once, and takes its time now
            pipelined.sendall(whole + half)
            assert pipelined.recv(4096).startswith(b"HTTP/1.1 200")
            for connection in (silent, halfway, second, pipelined):
                while rest := connection.recv(4096):
                    assert rest.endswith(b"}"), rest  # the body of the whole one
            # All were closed, well before the test gives up.


@pytest.mark.parametrize("path", ["/", "/sign-in", "/buy", "/tasks/" + "0" * 24])
def test_pages_are_for_the_markets_own_names_alone(market, path) -> None:
    host, port = market.url.removeprefix("http://").split(":")
    for name, allowed in ((f"localhost:{port}", True), ("evil.example", False), (host, False)):
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
        connection.request("GET", path, headers={"Host": name})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert (answer.status == 422) is not allowed
        assert ("This market is" in text) is not allowed


def test_a_request_that_was_signed_for_another_market_is_refused(market, capsys) -> None:
    host, port = market.url.removeprefix("http://").split(":")
    key = SigningKey.generate()
    made = Shell(capsys, market.url).json("token", "enrol", "--owner", "owner:passed-on",
                                          token=market.operator)  # fmt: skip
    with Connection(market.url, key=key) as device:
        device.post("/v1/enrolments", {"token": made["token"], "public_key": key.public})
    for name, status in ((f"{host}:{port}", 200), ("other.example", 401)):
        request = Request("GET", "http", name, "/v1/me")
        signed = sign_request(request, key, now_ms=time.time_ns() // 10**6, nonce="n" * 20 + name)
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
        connection.request("GET", "/v1/me", headers={"Host": name, **signed})
        answer = connection.getresponse()
        assert answer.status == status, answer.read()
        connection.close()


def test_one_block_of_addresses_cannot_hold_all_connections(tmp_path) -> None:
    with running_market(tmp_path / "m") as market, ExitStack() as held:
        host, port = market.url.removeprefix("http://").split(":")

        def connect(source: str) -> socket.socket:
            return held.enter_context(
                socket.create_connection((host, int(port)), WAIT_S, source_address=(source, 0))
            )

        crowd = [connect(f"127.0.0.{2 + number % 4}") for number in range(400)]
        closed = 0
        for connection in crowd:
            connection.setblocking(False)
        deadline = time.monotonic() + 8  # before silence ends them anyway
        while closed < 100 and time.monotonic() < deadline:
            time.sleep(0.05)
            closed = sum(_is_closed(connection) for connection in crowd)
        assert closed == 100
        elsewhere = connect("127.0.1.1")
        elsewhere.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert elsewhere.recv(4096).startswith(b"HTTP/1.1 200")


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_a_market_that_may_open_too_few_files_does_not_start(tmp_path) -> None:
    limited = f"ulimit -n 96; exec {shlex.join(command('serve', '--folder', tmp_path / 'm'))}"
    done = subprocess.run(
        ["bash", "-c", limited], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 9
    assert "a market needs 1200 open files at once; this user may have 96" in done.stderr
    assert not (tmp_path / "m").exists()


def test_a_balance_that_was_changed_by_hand_is_not_served(tmp_path, capsys) -> None:
    folder = tmp_path / "m"
    with running_market(folder):
        pass
    with sqlite3.connect(folder / "market.db") as database:
        database.execute("INSERT INTO accounts (id, balance) VALUES ('owner:evil', 7)")
    database.close()
    code, sentence = refused(capsys, "--folder", folder, "--port", "0")
    assert code == 15
    assert "1 accounts do not hold what their transfers leave, such as owner:evil" in sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "is for this machine alone, and 0.0.0.0 can be reached"),
        (["--workers", "2"], "is served by one process; found 2 workers"),
        (["--database", "sqlite:///x.db"], "has no use for a database of its own"),
        (["--behind-proxy"], "has no use for a proxy"),
        (["--public-host", "demo.example"], "has no use for public hosts"),
    ],
)
def test_a_demonstration_is_for_this_machine_alone(
    capsys, tmp_path, monkeypatch, arguments, sentence
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = refused(capsys, "--demo", "--port", "0", *arguments)
    assert (code, sentence in said) == (2, True), said
    assert not list(tmp_path.iterdir())


def test_made_up_tasks_and_a_real_market_share_no_folder(capsys, tmp_path) -> None:
    real, other, demo = (tmp_path / name for name in ("real", "other", "demo"))
    with running_market(real):
        pass
    code, said = refused(capsys, "--demo", "--folder", real, "--port", "0")
    assert (code, "holds a real market, which is never filled" in said) == (11, True)
    other.mkdir(mode=0o700)
    (other / "thesis.txt").write_text("")
    code, said = refused(capsys, "--demo", "--folder", other, "--port", "0")
    assert (code, "it holds 'thesis.txt'" in said) == (5, True)
    demo.mkdir(mode=0o700)
    (demo / "demo.json").write_text("{}")
    code, said = refused(capsys, "--folder", demo, "--port", "0")
    assert (code, "whose money is play money; serve it with --demo" in said) == (11, True)


def test_a_demonstration_whose_operator_is_gone_says_so(tmp_path) -> None:
    folder = tmp_path / "demo"
    with running_market(folder, "--demo") as first:
        assert set(first.ready["tokens"]) == {"buyer", "owner", "operator", "auditor"}
        assert first.ready["demo"] is True
    (folder / "operator.token").unlink()
    serve = command("serve", "--demo", "--folder", folder, "--port", "0")
    done = subprocess.run(serve, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert "is gone, and with it the operator of the demonstration" in done.stderr
    assert "Traceback" not in done.stderr


def test_people_are_told_how_to_sign_in_and_that_all_is_made_up(tmp_path) -> None:
    serve = command("serve", "--demo", "--folder", tmp_path / "m", "--port", "0")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(serve, **pipes) as process:
        lines = [process.stdout.readline() for _ in range(9)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    assert lines[0].startswith("fedbourse demonstration at http://127.0.0.1:")
    assert "made up" in lines[1]
    assert "play money" in lines[1]
    said = {line.split()[0]: line.split()[1:] for line in lines[3:7]}
    assert {kind: each[0] for kind, each in said.items()} == {
        "buyer": "buyer:demo",
        "owner": "owner:ann",
        "operator": "operator:main",
        "auditor": "auditor:demo",
    }
    assert all(each[1].startswith("fbt_") for each in said.values())
    assert (process.returncode, "Traceback" in err) == (0, False)
