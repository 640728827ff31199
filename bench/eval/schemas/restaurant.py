"""Restaurant bookings: which slots a request fills, in its own words."""

from typing import Annotated

from pydantic import BaseModel, Field

from gristmill import Verbatim

Words = Annotated[str, Verbatim()]


class Restaurant(BaseModel):
    """Read the request and fill in the slots that it names. Copy values as written and leave out what is absent."""

    city: Words | None = Field(None, description="town of the restaurant")
    country: Words | None = Field(None, description="country of the restaurant")
    cuisine: Words | None = Field(None, description="kind of cooking")
    facility: Words | None = Field(None, description="something that the restaurant has")
    party_size_description: Words | None = Field(None, description="who comes, in words")
    party_size_number: Words | None = Field(None, description="how many come")
    poi: Words | None = Field(None, description="a place near which the restaurant is")
    restaurant_name: Words | None = Field(None, description="name of the restaurant")
    restaurant_type: Words | None = Field(None, description="kind of restaurant")
    served_dish: Words | None = Field(None, description="a dish that is wanted")
    sort: Words | None = Field(None, description="how good or known it should be")
    spatial_relation: Words | None = Field(None, description="how near it should be")
    state: Words | None = Field(None, description="state of the restaurant")
    timeRange: Words | None = Field(None, description="when")  # noqa: N815 - as the labelled texts call it
