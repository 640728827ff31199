"""Addresses of the United States: the parts of an address line, in its own words."""

from typing import Annotated

from pydantic import BaseModel, Field

from gristmill import Verbatim

Words = Annotated[str, Verbatim()]


class UsAddress(BaseModel):
    """Read the address and fill in its parts. Copy them as written and leave out what is absent."""

    Recipient: Words | None = Field(None, description="who it is for")
    AddressNumber: Words | None = Field(None, description="house number")
    StreetNamePreDirectional: Words | None = Field(None, description="direction before the street name")
    StreetName: Words | None = Field(None, description="name of the street")
    OccupancyIdentifier: Words | None = Field(None, description="number or letter of the flat or suite")
    PlaceName: Words | None = Field(None, description="town")
    StateName: Words | None = Field(None, description="state")
    ZipCode: Words | None = Field(None, description="postal code")
    SubaddressType: Words | None = Field(None, description="kind of part of a building or organisation")
    SubaddressIdentifier: Words | None = Field(None, description="its number or name")
    USPSBoxType: Words | None = Field(None, description="words for a post office box")
    USPSBoxID: Words | None = Field(None, description="number of the box")
    USPSBoxGroupType: Words | None = Field(None, description="words for a group of boxes or a rural route")
    USPSBoxGroupID: Words | None = Field(None, description="number of the group or route")
    StreetNamePostType: Words | None = Field(None, description="kind of street, behind its name")
    StreetNamePostDirectional: Words | None = Field(None, description="direction behind the street name")
    BuildingName: Words | None = Field(None, description="name of the building")
    OccupancyType: Words | None = Field(None, description="words for flat or suite")
    StreetNamePreType: Words | None = Field(None, description="kind of street, before its name")
    CountryName: Words | None = Field(None, description="country")
    NotAddress: Words | None = Field(None, description="words that do not belong to the address")
