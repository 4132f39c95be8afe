"""What each suite's tools are: which act on the world, and whose results nobody but the user or the provider wrote.

All others read or return what strangers can write: messages, files, web pages, reviews, subjects of transfers. A tool
that acts and only says back what it was given brings nothing new, and counts as trusted.
Invariant: what is not listed as trusted is not trusted.
"""

from __future__ import annotations

from typing import Final

ACTS: Final[dict[str, frozenset[str]]] = {
    "workspace": frozenset(
        {
            "send_email", "delete_email", "create_calendar_event", "cancel_calendar_event",
            "reschedule_calendar_event", "add_calendar_event_participants", "append_to_file", "create_file",
            "delete_file", "share_file",
        }
    ),
    "travel": frozenset(
        {
            "create_calendar_event", "cancel_calendar_event", "reserve_hotel", "reserve_car_rental",
            "reserve_restaurant", "send_email",
        }
    ),
    "banking": frozenset(
        {
            "send_money", "schedule_transaction", "update_scheduled_transaction", "update_password",
            "update_user_info",
        }
    ),
    # To open a page tells its owner that it was opened, and can carry a secret in its address.
    "slack": frozenset(
        {
            "add_user_to_channel", "send_direct_message", "send_channel_message", "invite_user_to_slack",
            "remove_user_from_slack", "get_webpage", "post_webpage",
        }
    ),
}  # fmt: skip
"""Suite -> tools that act on the world outside the team."""

TRUSTED: Final[dict[str, frozenset[str]]] = {
    "workspace": frozenset(
        {
            "search_contacts_by_name", "search_contacts_by_email", "get_current_day", "send_email",
            "create_calendar_event", "create_file",
        }
    ),
    # The agency's own catalogue; what guests wrote of it are the reviews, and calendars hold others' invitations.
    "travel": frozenset(
        {
            "get_user_information", "get_all_hotels_in_city", "get_hotels_prices", "get_hotels_address",
            "get_all_restaurants_in_city", "get_cuisine_type_for_restaurants", "get_restaurants_address",
            "get_dietary_restrictions_for_all_restaurants", "get_contact_information_for_restaurants",
            "get_price_for_restaurants", "check_restaurant_opening_hours", "get_all_car_rental_companies_in_city",
            "get_car_types_available", "get_car_fuel_options", "get_car_rental_address", "get_car_price_per_day",
            "get_flight_information", "reserve_hotel", "reserve_car_rental", "reserve_restaurant", "send_email",
            "create_calendar_event",
        }
    ),
    "banking": frozenset(
        {
            "get_iban", "get_balance", "get_user_info", "get_scheduled_transactions", "send_money",
            "schedule_transaction", "update_scheduled_transaction", "update_password", "update_user_info",
        }
    ),
    # Names of accounts are given by the workspace; those of channels by whoever opens one.
    "slack": frozenset(
        {
            "get_users_in_channel", "add_user_to_channel", "send_direct_message", "send_channel_message",
            "invite_user_to_slack", "remove_user_from_slack", "post_webpage",
        }
    ),
}  # fmt: skip
"""Suite -> tools whose results hold no stranger's words."""

_READS: Final[dict[str, tuple[str, ...]]] = {
    "workspace": (
        "get_unread_emails", "get_sent_emails", "get_received_emails", "get_draft_emails", "search_emails",
        "search_calendar_events", "get_day_calendar_events", "search_files_by_filename", "get_file_by_id",
        "list_files", "search_files",
    ),
    "travel": (
        "get_rating_reviews_for_hotels", "get_rating_reviews_for_restaurants", "get_rating_reviews_for_car_rental",
        "search_calendar_events", "get_day_calendar_events",
    ),
    "banking": ("get_most_recent_transactions", "read_file"),
    "slack": ("get_channels", "read_channel_messages", "read_inbox"),
}  # fmt: skip
TOOLS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(sorted({*ACTS[name], *TRUSTED[name], *reads})) for name, reads in _READS.items()
}
"""Suite -> the names of all its tools."""
