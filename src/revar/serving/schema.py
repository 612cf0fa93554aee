"""The shape of what goes in and out, for ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Answer(BaseModel):
    """One decision."""

    input: str = Field(description="The name of the file, or the number of the row.")
    label: str = Field(description='A class, or "abstain".')
    accepted: bool = Field(description="False where the model abstains.")
    uncertainty: float = Field(description="Higher is less certain.")
    threshold: float | None = Field(
        description="Accepted iff uncertainty <= threshold; null where none is set."
    )
    probabilities: dict[str, float] = Field(description="By class.")
    model: str = Field(description="Equal for equal weights.")


class Answers(BaseModel):
    """The decisions of one request, in its order."""

    predictions: list[Answer]


class Problem(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="One sentence.")


PREDICT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["rows"],
                    "additionalProperties": False,
                    "properties": {
                        "rows": {
                            "type": "array",
                            "minItems": 1,
                            "description": "Lists of numbers, or objects of named values.",
                            "items": {"anyOf": [{"type": "array"}, {"type": "object"}]},
                        }
                    },
                }
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "images": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                }
            },
        },
    }
}
