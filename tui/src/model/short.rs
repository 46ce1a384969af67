//! The short form of a demangled C++ name: the part a person would say, with the numbers and the data type that
//! tell its variants apart.

/// How deep wrappers and arguments are looked into.
const MAX_DEPTH: usize = 12;
/// Numbers kept of a template argument list.
const NUMBERS: usize = 3;

/// The short form of a name without return type and parameters. With `detail`, the outer numbers of a wrapper are
/// kept too. The result may be long when the name is; the caller cuts it.
pub(super) fn of(name: &str, detail: bool) -> String {
    say(name, detail, 0)
}

fn say(path: &str, detail: bool, depth: usize) -> String {
    let part = Part::last(path);
    let arguments = part.arguments();
    let inner = arguments.iter().copied().find(|argument| is_complex(argument));
    if depth < MAX_DEPTH
        && let Some(inner) = inner
    {
        if is_wrapper(part.name) {
            return say(inner, detail, depth + 1);
        }
        if let Some(role) = role(part.name) {
            let numbers = if detail { gather(&arguments, usize::MAX) } else { String::new() };
            return format!("{role}{numbers}: {}", say(inner, false, depth + 1));
        }
    }
    format!("{}{}", trim_suffix(part.name), gather(&arguments, depth))
}

/// The last named part of a path: `c<1>` of `a::b::c<1>(int)::{lambda()#1}`.
struct Part<'a> {
    name: &'a str,
    arguments: Option<&'a str>,
}

impl<'a> Part<'a> {
    fn last(path: &'a str) -> Self {
        let parts = split(path, "::");
        let named = |part: &&&str| {
            !part.is_empty() && !part.starts_with(['{', '(']) && !part.starts_with("operator()")
        };
        let part = parts.iter().rev().find(named).map_or(path, |part| part.trim());
        let end = part
            .char_indices()
            .find(|(i, c)| *i > 0 && matches!(c, '<' | '('))
            .map_or(part.len(), |(i, _)| i);
        let (name, rest) = part.split_at(end);
        let arguments = rest.strip_prefix('<').map(|inside| &inside[..closing(inside)]);
        Self { name, arguments }
    }

    fn arguments(&self) -> Vec<&'a str> {
        self.arguments.map(|list| split(list, ",")).unwrap_or_default()
    }
}

/// Kernels that only call what they are given.
fn is_wrapper(name: &str) -> bool {
    matches!(
        name,
        "device_kernel"
            | "Kernel"
            | "Kernel2"
            | "kernel"
            | "gpu_index_kernel"
            | "ReduceOp"
            | "BinaryFunctor"
            | "AUnaryFunctor"
            | "BUnaryFunctor"
    ) || name.starts_with("enable_")
        || name.starts_with("gpu_kernel")
}

/// What a kernel that applies a function does with it.
fn role(name: &str) -> Option<&'static str> {
    if name.contains("elementwise") {
        Some("elementwise")
    } else if name == "reduce_kernel" {
        Some("reduce")
    } else {
        None
    }
}

fn trim_suffix(name: &str) -> &str {
    ["_kernel_cuda", "_kernel_impl", "_kernel"]
        .into_iter()
        .find_map(|suffix| name.strip_suffix(suffix).filter(|rest| rest.chars().any(char::is_alphanumeric)))
        .filter(|_| !name.starts_with('_'))
        .unwrap_or(name)
}

/// The numbers and the data type of a template argument list, in angle brackets; of the first complex argument
/// when there are none.
fn gather(arguments: &[&str], depth: usize) -> String {
    let mut numbers: Vec<String> = Vec::new();
    let mut data: Option<&str> = None;
    for argument in arguments {
        match Atom::of(argument) {
            Atom::Number(number) if numbers.len() < NUMBERS => numbers.push(number),
            // The first type, unless it is an integer and a later one is not.
            Atom::Data(name) if data.is_none_or(|first| is_integer(first) && !is_integer(name)) => {
                data = Some(name);
            }
            _ => {}
        }
    }
    numbers.extend(data.map(str::to_owned));
    if !numbers.is_empty() {
        return format!("<{}>", numbers.join(","));
    }
    match arguments.iter().find(|argument| is_complex(argument)) {
        Some(inner) if depth < MAX_DEPTH => gather(&Part::last(inner).arguments(), depth + 1),
        _ => String::new(),
    }
}

fn is_integer(data_type: &str) -> bool {
    data_type.starts_with(['i', 'u'])
}

/// What a template argument is.
enum Atom {
    Number(String),
    Data(&'static str),
    /// A truth value, an enumerator, a pointer: left out.
    Nothing,
    /// A type with a name worth saying.
    Complex,
}

impl Atom {
    fn of(argument: &str) -> Self {
        let argument = argument.trim();
        if let Some(inside) = argument.strip_prefix('(') {
            // A literal with its type: `(int)2`, `(bool)1`, `(some::Enum)0`.
            let end = closing(inside);
            let (kind, value) = (&inside[..end], inside.get(end + 1..).unwrap_or_default());
            let builtin = data_type(kind).is_some_and(|name| name != "bool");
            return if builtin { number(value).map_or(Self::Nothing, Self::Number) } else { Self::Nothing };
        }
        if let Some(number) = number(argument) {
            return Self::Number(number);
        }
        if argument.is_empty()
            || matches!(argument, "true" | "false" | "void")
            || argument.ends_with(['*', '&'])
        {
            return Self::Nothing;
        }
        if let Some(name) = data_type(argument) {
            return Self::Data(name);
        }
        let part = Part::last(argument);
        match part.name {
            "C" | "constant" | "integral_constant" => {
                let numbers = part.arguments();
                numbers.iter().rev().find_map(|text| number(text)).map_or(Self::Nothing, Self::Number)
            }
            "tuple" | "Shape" => shape(&part.arguments()),
            "array" | "TrivialOffsetCalculator" | "OffsetCalculator" => Self::Nothing,
            _ => Self::Complex,
        }
    }
}

fn is_complex(argument: &str) -> bool {
    matches!(Atom::of(argument), Atom::Complex)
}

/// A tuple of numbers, `8x128`; nothing when all are 1 or some are no numbers.
fn shape(members: &[&str]) -> Atom {
    let numbers: Option<Vec<String>> = members
        .iter()
        .map(|member| match Atom::of(member) {
            Atom::Number(number) => Some(number),
            _ => None,
        })
        .collect();
    match numbers {
        Some(numbers) if numbers.iter().any(|number| number != "1") => Atom::Number(numbers.join("x")),
        _ => Atom::Nothing,
    }
}

/// A whole number without its suffix.
fn number(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches(['u', 'l']);
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.len() <= 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.to_owned())
}

/// The usual short name of a data type.
fn data_type(name: &str) -> Option<&'static str> {
    Some(match name.rsplit("::").next().unwrap_or(name) {
        "float" => "f32",
        "double" => "f64",
        "__half" | "half" | "Half" | "half_t" => "f16",
        "__nv_bfloat16" | "nv_bfloat16" | "BFloat16" | "bfloat16_t" => "bf16",
        "__nv_fp8_e4m3" | "float_e4m3_t" | "Float8_e4m3fn" => "e4m3",
        "__nv_fp8_e5m2" | "float_e5m2_t" | "Float8_e5m2" => "e5m2",
        "int" => "i32",
        "long" | "long long" => "i64",
        "short" => "i16",
        "char" | "signed char" => "i8",
        "unsigned int" | "unsigned" => "u32",
        "unsigned long" | "unsigned long long" => "u64",
        "unsigned short" => "u16",
        "unsigned char" => "u8",
        "bool" => "bool",
        _ => return None,
    })
}

/// Splits at separators outside all brackets.
fn split<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0usize);
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        depth = nesting(bytes, i, depth);
        if depth == 0 && bytes[i..].starts_with(separator.as_bytes()) {
            parts.push(text[from..i].trim());
            i += separator.len();
            from = i;
        } else {
            i += 1;
        }
    }
    parts.push(text[from..].trim());
    parts
}

/// Where the bracket that was opened just before `text` closes, or its end.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    for i in 0..text.len() {
        depth = nesting(text.as_bytes(), i, depth);
        if depth == 0 {
            return i;
        }
    }
    text.len()
}

/// The depth of nesting behind the byte at `i`, given the one before it.
fn nesting(bytes: &[u8], i: usize, depth: usize) -> usize {
    match bytes[i] {
        b'<' | b'(' | b'{' | b'[' => depth + 1,
        b'>' if i > 0 && bytes[i - 1] == b'-' => depth,
        b'>' | b')' | b'}' | b']' => depth.saturating_sub(1),
        _ => depth,
    }
}
