"""Who may do what: here everybody everything, as a SelfSubjectAccessReview tells whoever asks."""

from typing import Any, Final

PATH: Final = ("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews")


def answered(review: dict[str, Any]) -> dict[str, Any]:
    """The review with its answer."""
    return {**review, "status": {"allowed": True, "reason": "nobody is refused here"}}
