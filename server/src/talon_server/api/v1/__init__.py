"""The OpenSandbox dialect: `build` for its lifecycle API, `egress_app` for port 18080, `error_words` for the gateway."""

from talon_server.api.services import Services
from talon_server.api.v1.app import build
from talon_server.api.v1.egress import EgressApi
from talon_server.api.v1.problems import words_of as error_words


def egress_app(services: Services) -> EgressApi:
    """What answers port 18080 of each sandbox."""
    return EgressApi(services.lifecycle)


__all__ = ["build", "egress_app", "error_words"]
