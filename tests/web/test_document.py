"""The API's document: complete, with examples that fit the shapes they are examples of."""

from __future__ import annotations

import pytest
from jsonschema_rs import Draft202012Validator

from fedbourse.market.service import Market
from fedbourse.protocol.keys import SigningKey
from fedbourse.tasks.card import TaskCard
from fedbourse.web.app import create_app

DOCUMENT = create_app(Market(SigningKey.generate()), None, None).openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    (method.upper(), path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def fits(schema, example):
    whole = {**schema, "components": DOCUMENT["components"]}
    return [error.message for error in Draft202012Validator(whole).iter_errors(example)]


def test_every_operation_has_a_name_of_its_own_a_sentence_a_tag_and_a_proof():
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names) == 54
    for route, operation in OPERATIONS.items():
        assert operation["description"].endswith("."), route
        assert len(operation["tags"]) == 1, route
        assert "security" in operation, route
        assert operation["responses"]["4XX"] == {"$ref": "#/components/responses/Problem"}


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_shape_has_an_example_that_fits(name):
    schema = SCHEMAS[name]
    if "enum" in schema:
        return
    assert fits(schema, schema["example"]) == []


def test_every_answer_and_every_body_is_described():
    for route, operation in OPERATIONS.items():
        good = [answer for status, answer in operation["responses"].items() if status[0] == "2"]
        for answer in good[:1]:
            for kind, found in answer["content"].items():
                if kind == "application/json":
                    assert found["schema"]["$ref"].rpartition("/")[2] in SCHEMAS, route
        body = operation.get("requestBody", {}).get("content", {})
        assert bool(body) == (route[0] in ("POST", "PUT")), route


def test_every_write_needs_a_key_and_every_list_has_a_bound():
    for route, operation in OPERATIONS.items():
        parameters = {each["name"]: each for each in operation.get("parameters", ())}
        assert ("idempotency-key" in parameters) == (route[0] != "GET"), route
        if route[0] != "GET":
            assert parameters["idempotency-key"]["required"]
            continue
        content = operation["responses"]["200"].get("content", {}).get("application/json")
        if (
            content
            and "next" in SCHEMAS[content["schema"]["$ref"].rpartition("/")[2]]["properties"]
        ):
            bound = parameters["limit"]["schema"]
            assert (bound["minimum"], bound["maximum"], bound["default"]) == (1, 1000, 100)


def test_the_example_of_a_card_is_a_card():
    content = OPERATIONS["POST", "/v1/tasks"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]
    assert fits(schema, schema["example"]) == []
    shown = TaskCard.of(schema["example"]).document
    assert fits(SCHEMAS["PublishedCard"]["properties"]["card"], shown) == []


def test_an_example_that_does_not_fit_would_be_seen():
    schema = SCHEMAS["Balance"]
    assert fits(schema, {"party": "buyer:acme", "balance_micro": 1.5})
    assert fits(schema, {"party": "buyer:acme", "balance_micro": 1, "more": 1})
