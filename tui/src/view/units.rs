//! Numbers as people read them: three digits that matter, and always the unit. What is not known is `?`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Three significant digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

/// A duration in nanoseconds: `940 ns`, `58.2 µs`, `4.3 ms`, `12.0 s`.
pub(crate) fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_950 => format!("{} µs", short(value / 1e3)),
        999_950..999_950_000 => format!("{} ms", short(value / 1e6)),
        _ => format!("{} s", short(value / 1e9)),
    }
}

/// A duration with one digit more: `4.31 ms`, `12.3 ms`.
pub(crate) fn fine_duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return duration(ns),
        1_000..999_995 => (ns as f64 / 1e3, "µs"),
        999_995..999_995_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    if value < 9.995 { format!("{value:.2} {unit}") } else { format!("{} {unit}", short(value)) }
}

/// A duration with as many digits as tell it from one `step` nanoseconds longer: `4.7 s`, or `4.7103 s`.
pub(crate) fn told_apart(ns: u64, step: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return duration(ns),
        1_000..999_950 => (1_000, "µs"),
        999_950..999_950_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let value = ns as f64 / f64::from(unit);
    let usual = usize::from(value < 99.95);
    let digits = (0..9).find(|digits| f64::from(unit) / 10_f64.powi(*digits) <= step as f64).unwrap_or(9);
    format!("{value:.*} {name}", usual.max(digits as usize))
}

/// A count with its thousands apart: `2,380,275`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count for a glance: `510`, `6.6k`, `110k`, `25.0M`.
pub(crate) fn glance(value: f64) -> String {
    match value {
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 999_500.0 => format!("{}k", short(v / 1e3)),
        v if v < 999_500_000.0 => format!("{}M", short(v / 1e6)),
        v => format!("{}G", short(v / 1e9)),
    }
}

/// How many of something: `1 kernel`, `61 kernels`, `2 processes`.
pub(crate) fn some(number: usize, what: &str) -> String {
    let (stem, ending) = match number {
        1 => (what, ""),
        _ if ["s", "sh", "ch"].iter().any(|end| what.ends_with(end)) => (what, "es"),
        _ => what.strip_suffix('y').map_or((what, "s"), |stem| (stem, "ies")),
    };
    format!("{} {stem}{ending}", count(number as u64))
}

/// A share of 1 in percent. Neither a trace nor a near-whole is rounded away: `<0.1 %`, `>99.9 %`.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p <= 0.0 => "0 %".to_owned(),
        p if p < 0.1 => "<0.1 %".to_owned(),
        p if p >= 100.0 => "100 %".to_owned(),
        p if p > 99.9 => ">99.9 %".to_owned(),
        p => format!("{p:.1} %"),
    }
}

/// How much more or less, 0.18 for 18 % more: `+18 %`, `−3.2 %`, `×4.1`.
pub(crate) fn change(change: f64) -> String {
    let sign = if change < 0.0 { '−' } else { '+' };
    match change.abs() * 100.0 {
        percent if percent < 0.05 => "±0 %".to_owned(),
        percent if percent < 9.95 => format!("{sign}{percent:.1} %"),
        percent if percent < 199.5 => format!("{sign}{percent:.0} %"),
        _ => format!("×{}", short(1.0 + change)),
    }
}

/// A share that may be unknown.
pub(crate) fn maybe_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "?".to_owned(), percent)
}

/// What is known of something in words: `?` when nothing is, and `+ ?` where there is more.
pub(crate) fn known<T>(values: impl Iterator<Item = Option<T>>, words: impl Fn(&[T]) -> String) -> String {
    let mut unknown = false;
    let known: Vec<T> = values.inspect(|value| unknown |= value.is_none()).flatten().collect();
    match (known.is_empty(), unknown) {
        (true, _) => "?".to_owned(),
        (false, false) => words(&known),
        (false, true) => format!("{} + ?", words(&known)),
    }
}

/// Bytes in MiB: `43,720 MiB`.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{} MiB", count((bytes + (1 << 19)) >> 20))
}

/// A change in bytes: `+0`, `+12 MiB`, `−3 MiB`.
pub(crate) fn grown(bytes: i64) -> String {
    let sign = if bytes < 0 { '−' } else { '+' };
    match bytes.unsigned_abs() {
        0 => "+0".to_owned(),
        small if small < 1 << 20 => format!("{sign}{} KiB", small.div_ceil(1 << 10)),
        more => format!("{sign}{}", mib(more)),
    }
}

/// Bytes with the unit that suits them: `64 B`, `4.0 KiB`, `139.8 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.1} GiB", value / 1_073_741_824.0),
    }
}

/// How long ago, in seconds: `0.4 s`, `12 s`, `3 min`, `2 h`.
pub(crate) fn age(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5_970.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

/// The range of a time, behind that: ` (34 s to 44 s)`, ` (34 s or more)`; nothing where none is known or it is no range.
pub(crate) fn range(shortest: Option<f64>, longest: Option<f64>) -> String {
    let Some(shortest) = shortest.map(age) else { return String::new() };
    match longest.map(age) {
        Some(longest) if longest == shortest => String::new(),
        Some(longest) => format!(" ({shortest} to {longest})"),
        None => format!(" ({shortest} or more)"),
    }
}

/// Behind a count of lost records: whether there may be more of them.
pub(crate) const fn and_more(more: bool) -> &'static str {
    if more { " + ?" } else { "" }
}

/// A count that may not be known.
pub(crate) fn maybe_count(count: Option<u64>) -> String {
    count.map_or("?".to_owned(), self::count)
}

/// A moment (`CLOCK_REALTIME` nanoseconds) as a wall clock shows it: `17:20:41`.
pub(crate) fn clock(ns: u64, zone: &TimeZone) -> String {
    if ns == 0 {
        return "--:--:--".to_owned();
    }
    Timestamp::from_nanosecond(i128::from(ns)).map_or_else(
        |_| "--:--:--".to_owned(),
        |moment| moment.to_zoned_datetime(zone.clone()).strftime("%H:%M:%S").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_near_to_one_another_are_told_apart() {
        for (ns, step, text) in [
            (940, 1, "940 ns"),
            (48_800_000, 10_000_000, "48.8 ms"),
            (438_000_000, 10_000_000, "438 ms"),
            (438_210_000, 10_000, "438.21 ms"),
            (4_710_300_000, 10_000_000, "4.71 s"),
            (4_710_300_000, 100_000, "4.7103 s"),
            (12_000_000_000, 60_000_000_000, "12.0 s"),
        ] {
            assert_eq!(told_apart(ns, step), text);
        }
    }

    #[test]
    fn durations_change_unit_before_they_need_four_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.0 µs"),
            (58_240, "58.2 µs"),
            (999_949, "1000 µs"),
            (999_950, "1.0 ms"),
            (4_310_000, "4.3 ms"),
            (12_000_000_000, "12.0 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(duration(u64::MAX), "18446744074 s");
        for (ns, text) in
            [(940, "940 ns"), (4_310_000, "4.31 ms"), (9_996_000, "10.0 ms"), (1_500_000_000, "1.50 s")]
        {
            assert_eq!(fine_duration(ns), text);
        }
    }

    #[test]
    fn shares_never_round_a_fault_to_nothing() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(3.0 / 2.4e6), "<0.1 %");
        assert_eq!(percent(0.314), "31.4 %");
        assert_eq!(percent(0.9999), ">99.9 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(maybe_percent(None), "?");
        for (value, text) in
            [(0.18, "+18 %"), (-0.032, "−3.2 %"), (3.1, "×4.1"), (0.0001, "±0 %"), (-1.0, "−100 %")]
        {
            assert_eq!(change(value), text);
        }
    }

    #[test]
    fn counts_and_sizes() {
        assert_eq!(count(0), "0");
        assert_eq!(count(2_380_275), "2,380,275");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(some(1, "event"), "1 event");
        assert_eq!((some(1, "family"), some(5, "family")), ("1 family".to_owned(), "5 families".to_owned()));
        assert_eq!(some(1_208, "process"), "1,208 processes");
        assert_eq!(glance(510.4), "510");
        assert_eq!(glance(6_580.0), "6.6k");
        assert_eq!(glance(110_000.0), "110k");
        assert_eq!(glance(25e6), "25.0M");
        assert_eq!(mib(43_720 << 20), "43,720 MiB");
        assert_eq!(bytes(150_110_011_392), "139.8 GiB");
        assert_eq!(grown(0), "+0");
        assert_eq!(grown(-(3 << 20)), "−3 MiB");
        assert_eq!(grown(100), "+1 KiB");
    }

    #[test]
    fn moments_and_ages() {
        assert_eq!(clock(1_700_000_000_000_000_000, &TimeZone::UTC), "22:13:20");
        assert_eq!(clock(0, &TimeZone::UTC), "--:--:--");
        assert_eq!(age(-1.0), "0.0 s");
        assert_eq!(age(3.24), "3.2 s");
        assert_eq!(age(240.0), "4 min");
    }
}
