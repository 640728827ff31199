"""Contact details: out of signatures, notes and introductions."""

from typing import Annotated

from pydantic import BaseModel, Field

from gristmill import Example, Verbatim

Phone = Annotated[str, Field(pattern=r"^\+?[0-9(][0-9 ()/.-]{4,22}[0-9]$")]
Email = Annotated[str, Field(pattern=r"^[A-Za-z0-9._%+-]{1,40}@[A-Za-z0-9-]{1,30}(\.[A-Za-z0-9-]{1,20}){1,3}$")]


class Contact(BaseModel):
    """Read the text and fill in the person's contact details. Copy them as written and leave out what is absent."""

    given_name: Annotated[str, Verbatim()] = Field(description="first name")
    family_name: Annotated[str, Verbatim()] | None = Field(default=None, description="last name")
    company: Annotated[str, Verbatim()] | None = Field(default=None, description="company or organisation")
    role: Annotated[str, Verbatim()] | None = Field(default=None, description="job title")
    phones: Annotated[list[Phone], Field(max_length=4)] = Field(description="telephone numbers as written")
    emails: Annotated[list[Email], Field(max_length=4)] = Field(description="e-mail addresses")
    city: Annotated[str, Verbatim()] | None = Field(default=None, description="town of the address")


EXAMPLES = [
    Example(
        text=(
            "Best, Jonas Weber | Head of Purchasing, Brandt Logistik GmbH, Bremen | +49 421 555 0134 | "
            "j.weber@brandt-logistik.example"
        ),
        output=Contact(
            given_name="Jonas",
            family_name="Weber",
            company="Brandt Logistik GmbH",
            role="Head of Purchasing",
            phones=["+49 421 555 0134"],
            emails=["j.weber@brandt-logistik.example"],
            city="Bremen",
        ),
    ),
    Example(
        text="you can reach aylin on aylin@kite-school.example, she has no phone right now",
        output=Contact(given_name="aylin", phones=[], emails=["aylin@kite-school.example"]),
    ),
]
