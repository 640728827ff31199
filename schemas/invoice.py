"""Invoices: who bills whom, what for, and a total that must be the sum of its items."""

import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, WithJsonSchema, model_validator

from gristmill import Example

Money = Annotated[
    Decimal,
    Field(ge=0, max_digits=9, decimal_places=2),
    WithJsonSchema({"type": "string", "pattern": r"^(0|[1-9][0-9]{0,6})\.[0-9]{2}$"}),
]


class LineItem(BaseModel):
    """One position of an invoice."""

    description: Annotated[str, Field(max_length=80)] = Field(description="what was sold, as written")
    quantity: Annotated[int, Field(ge=1, le=9999)] = Field(description="how many pieces or hours")
    unit_price: Money = Field(description="price of one piece, two decimals")


class Invoice(BaseModel):
    """Read the invoice and fill in its data. Copy names and numbers as they are written."""

    number: Annotated[str, Field(max_length=24)] = Field(description="the invoice number as written")
    issued: datetime.date = Field(description="the invoice date as YYYY-MM-DD")
    seller: Annotated[str, Field(max_length=60)] = Field(description="who sends the invoice")
    currency: Literal["EUR", "USD", "GBP", "CHF", "CNY"] = Field(description="currency of the amounts")
    items: Annotated[list[LineItem], Field(min_length=1, max_length=8)] = Field(
        description="the positions in the order of the invoice"
    )
    total: Money = Field(description="the total, which is the sum of quantity times unit_price")

    @model_validator(mode="after")
    def total_is_the_sum(self) -> Self:
        """The total must be the sum of quantity times unit price."""
        expected = sum((item.quantity * item.unit_price for item in self.items), Decimal())
        if self.total != expected:
            raise ValueError(f"total is {self.total}, but the items add up to {expected}")
        return self


EXAMPLES = [
    Example(
        text=(
            "INVOICE 2024-0117\nNordlicht Office Supplies\nDate: 14 March 2024\n"
            "2 x Monitor arm @ 49.90 EUR\n1 x Cable set @ 12.50 EUR\nTotal due: 112.30 EUR"
        ),
        output=Invoice(
            number="2024-0117",
            issued=datetime.date(2024, 3, 14),
            seller="Nordlicht Office Supplies",
            currency="EUR",
            items=[
                LineItem(description="Monitor arm", quantity=2, unit_price=Decimal("49.90")),
                LineItem(description="Cable set", quantity=1, unit_price=Decimal("12.50")),
            ],
            total=Decimal("112.30"),
        ),
    ),
]
