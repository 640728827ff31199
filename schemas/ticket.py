"""Support messages: what a customer wants, about which product, how urgently."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from gristmill import Example, Verbatim


class Ticket(BaseModel):
    """Read the support message and fill in the ticket. Copy names, products and numbers as they are written."""

    customer: Annotated[str, Verbatim()] | None = Field(
        description="name of the person who writes, null if the message has none"
    )
    product: Annotated[str, Verbatim()] | None = Field(
        description="the product the message is about, null if none is named"
    )
    category: Literal["delivery", "billing", "defect", "return", "account", "question", "other"] = Field(
        description="what the message is mainly about"
    )
    priority: Literal["low", "normal", "high"] = Field(
        description="high if something is urgent or unsafe, low if it can wait, else normal"
    )
    order_id: Annotated[str, Verbatim()] | None = Field(
        description="the order number as written, null if the message has none"
    )
    refund_requested: bool = Field(description="true if the writer asks for money back")
    sentiment: Literal["positive", "neutral", "negative"] = Field(description="the tone of the message")
    quantity: Annotated[int, Field(ge=1, le=9999)] | None = Field(
        description="how many pieces it is about, null if no number is given"
    )


EXAMPLES = [
    Example(
        text=(
            "Hello, I ordered 3 desk lamps (order KX-20418) and one of them arrived with a cracked shade. "
            "I would like my money back for it. Regards, Maria Lindqvist"
        ),
        output=Ticket(
            customer="Maria Lindqvist",
            product="desk lamps",
            category="defect",
            priority="normal",
            order_id="KX-20418",
            refund_requested=True,
            sentiment="negative",
            quantity=3,
        ),
    ),
    Example(
        text="hi, does the travel kettle come with a plug for the UK? no rush, thanks",
        output=Ticket(
            customer=None,
            product="travel kettle",
            category="question",
            priority="low",
            order_id=None,
            refund_requested=False,
            sentiment="neutral",
            quantity=None,
        ),
    ),
]
