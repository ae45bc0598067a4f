//! `{% generation %}` marks what the model wrote, for training. It prints its body, in a scope of its own: the engine
//! knows no such tag, so it is rewritten to `{% with %}`, which does just that.

/// The source with the tag's names replaced. Comments, raw blocks and strings are left alone.
pub fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while let Some(open) = find_open(source, at) {
        let kind = source.as_bytes()[open + 1];
        let end = match kind {
            b'#' => source[open..].find("#}").map(|n| open + n + 2),
            _ => find_close(source, open + 2, if kind == b'%' { "%}" } else { "}}" }),
        };
        let Some(end) = end else { break };
        let tag = &source[open..end];
        out.push_str(&source[at..open]);
        at = end;
        match if kind == b'%' { tag_name(tag) } else { "" } {
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            "raw" => {
                out.push_str(tag);
                let stop = end_of_raw(source, end);
                out.push_str(&source[end..stop]);
                at = stop;
            }
            _ => out.push_str(tag),
        }
    }
    out.push_str(&source[at..]);
    out
}

fn find_open(source: &str, from: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    (from..bytes.len().saturating_sub(1))
        .find(|&i| bytes[i] == b'{' && matches!(bytes[i + 1], b'%' | b'{' | b'#'))
}

/// The end of a tag whose inside starts at `from`: strings in it are skipped.
fn find_close(source: &str, from: usize, close: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut i = from;
    while i < bytes.len() {
        match bytes[i] {
            quote @ (b'"' | b'\'') => {
                i += 1;
                while i < bytes.len() && bytes[i] != quote {
                    i += if bytes[i] == b'\\' { 2 } else { 1 };
                }
                i += 1;
            }
            _ if source.is_char_boundary(i) && source[i..].starts_with(close) => {
                return Some(i + close.len())
            }
            _ => i += 1,
        }
    }
    None
}

/// The first word of `{%- word ... %}`.
fn tag_name(tag: &str) -> &str {
    let inside = tag[2..].trim_start_matches(['-', '+']).trim_start();
    let end = inside
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(inside.len());
    &inside[..end]
}

/// Where the `{% endraw %}` behind `from` starts.
fn end_of_raw(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(n) = source[at..].find("{%") {
        let open = at + n;
        if tag_name(&source[open..]) == "endraw" {
            return open;
        }
        at = open + 2;
    }
    source.len()
}
