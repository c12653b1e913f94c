"""Charts for notebooks and app, by domain: functions that take frames and return Altair charts."""
