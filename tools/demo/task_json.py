"""JSON answers: from a text to given keys or a schema, and small work on JSON itself."""

import json

import more
from task import Task, as_json, contains, exact
from words import Draw

# key names, type, values, and how a text says them ({v} the value). Texts speak of one thing, so no subject is needed.
FIELDS = {
    "person": {
        "name": (["name", "full_name", "person", "who"], "string", lambda d: d.pick([d.name, d.full_name])(), []),
        "age": (["age", "years", "age_years"], "integer", lambda d: d.number(3, 99), ["{s} is {v} years old.", "{s} is {v}.", "At the age of {v}, {s} is [happy|busy].", "{s} turned {v} [last month|this year]."]),
        "city": (["city", "home", "place", "town", "location", "lives_in"], "string", lambda d: d.city(), ["{s} lives in {v}.", "{s}'s home is {v}.", "{s} comes from {v}.", "{v} is the home of {s}."]),
        "job": (["job", "profession", "occupation", "work"], "string", lambda d: d.word("job"), ["{s} works as a {v}.", "{s} is a {v}.", "{s} earns a living as a {v}."]),
        "email": (["email", "mail", "email_address", "contact"], "string", lambda d: d.email(), ["The address of {s} is {v}.", "{s} can be reached at {v}.", "Write to {s} at {v}."]),
        "phone": (["phone", "telephone", "phone_number", "mobile"], "string", lambda d: d.digits(3) + "-" + d.digits(4), ["{s}'s number is {v}.", "Call {s} at {v}.", "{s} answers the phone {v}."]),
        "hobby": (["hobby", "pastime", "interest"], "string", lambda d: d.word("hobby"), ["{s} likes {v}.", "The hobby of {s} is {v}.", "{s} enjoys {v}."]),
        "languages": (["languages", "speaks", "spoken_languages"], "array", lambda d: d.words("language", d.range(1, 3)), ["{s} speaks {v}.", "{s} [knows|learned] {v}."]),
        "pet": (["pet", "animal"], "string", lambda d: d.word("animal"), ["{s} has a {v}.", "{s} keeps a {v}."]),
        "married": (["married", "is_married"], "boolean", lambda d: d.chance(0.5), ["{s} is {v:married/not married}.", "{s} is {v:married/single}."]),
        "height": (["height", "height_m"], "number", lambda d: d.range(150, 199) / 100, ["{s} is {v} m tall.", "{s} measures {v} meters."]),
        "country": (["country", "nation"], "string", lambda d: d.word("country"), ["{s} was born in {v}.", "The country of {s} is {v}."]),
    },
    "thing": {
        "name": (["product", "item", "name", "article", "title"], "string", lambda d: d.pick([lambda: "the " + d.word("object"), lambda: "the " + d.word("adjective") + " " + d.word("object")])(), []),
        "price": (["price", "cost", "amount"], "number", lambda d: d.pick([d.number(1, 999), d.range(100, 9999) / 100, d.range(10, 999) / 10]), ["{s} costs {v} [dollars|euros].", "The price of {s} is {v}.", "You pay {v} for {s}."]),
        "color": (["color", "colour"], "string", lambda d: d.word("color"), ["{s} is {v}.", "The color of {s} is {v}.", "{s} comes in {v}."]),
        "material": (["material", "made_of"], "string", lambda d: d.word("material"), ["{s} is made of {v}.", "The material of {s} is {v}."]),
        "quantity": (["quantity", "count", "stock", "number"], "integer", lambda d: d.number(1, 500), ["There are {v} of {s} in stock.", "We have {v} pieces of {s}.", "{v} pieces of {s} are left."]),
        "weight": (["weight", "weight_kg", "kg"], "number", lambda d: d.pick([d.number(1, 99), d.range(1, 99) / 10]), ["{s} weighs {v} kg.", "The weight of {s} is {v} kg."]),
        "in_stock": (["in_stock", "available"], "boolean", lambda d: d.chance(0.5), ["{s} is {v:available/not available}.", "{s} is {v:in stock/out of stock}."]),
        "brand": (["brand", "maker", "manufacturer", "company"], "string", lambda d: d.pick([d.word("product"), d.made_up(2).capitalize()]), ["{s} is made by {v}.", "The maker of {s} is {v}.", "{v} makes {s}."]),
        "code": (["code", "id", "sku", "number"], "string", lambda d: d.code(), ["The code of {s} is {v}.", "{s} has the code {v}."]),
        "tags": (["tags", "labels", "keywords"], "array", lambda d: d.words("adjective", d.range(1, 3)), ["{s} is described as {v}.", "The tags of {s} are {v}."]),
        "rating": (["rating", "stars", "score"], "integer", lambda d: d.range(1, 5), ["{s} has {v} stars.", "Buyers give {s} {v} of 5 stars."]),
        "place": (["place", "location", "where"], "string", lambda d: d.word("place"), ["{s} is in the {v}.", "You find {s} in the {v}."]),
    },
    "event": {
        "name": (["event", "title", "name", "what"], "string", lambda d: "the " + d.word("noun") + " " + d.pick(["party", "meeting", "concert", "talk", "race", "show", "workshop", "fair"]), []),
        "date": (["date", "on", "when", "day"], "string", lambda d: d.iso_date(), ["{s} is on {v}.", "{s} takes place on {v}.", "The date of {s} is {v}."]),
        "time": (["time", "start", "start_time", "at"], "string", lambda d: f"{d.range(0, 23):02d}:{d.pick(['00', '15', '30', '45'])}", ["{s} starts at {v}.", "At {v} {s} begins.", "{s} begins at {v}."]),
        "place": (["place", "location", "where", "venue", "city"], "string", lambda d: d.city(), ["{s} is in {v}.", "{s} is held in {v}.", "Go to {v} for {s}."]),
        "guests": (["guests", "people", "attendees", "visitors"], "integer", lambda d: d.number(2, 900), ["{v} people come to {s}.", "{s} has {v} guests."]),
        "host": (["host", "organizer", "speaker", "leader"], "string", lambda d: d.full_name(), ["{v} leads {s}.", "{s} is organized by {v}.", "The host of {s} is {v}."]),
        "price": (["price", "ticket", "fee", "cost"], "number", lambda d: d.pick([d.number(1, 200), d.range(10, 999) / 10]), ["A ticket for {s} costs {v}.", "{s} costs {v} euros."]),
        "public": (["public", "open", "is_public"], "boolean", lambda d: d.chance(0.5), ["{s} is {v:public/private}.", "{s} is {v:open to all/not open to all}."]),
        "names": (["participants", "names", "members", "team"], "array", lambda d: d.names(d.range(2, 4)), ["{v} take part in {s}.", "With {s} are {v}."]),
        "hours": (["hours", "duration", "duration_hours"], "number", lambda d: d.pick([d.range(1, 9), d.range(3, 15) / 2]), ["{s} lasts {v} hours.", "{s} takes {v} hours."]),
    },
    "order": {
        "customer": (["customer", "name", "buyer", "client"], "string", lambda d: d.full_name(), []),
        "item": (["item", "product", "article"], "string", lambda d: d.word("object"), ["{s} ordered a {v}.", "{s} wants a {v}.", "{s} bought a {v}."]),
        "quantity": (["quantity", "count", "pieces", "amount"], "integer", lambda d: d.number(1, 99), ["{s} takes {v} pieces.", "{s} needs {v} of them.", "The number of pieces is {v}."]),
        "total": (["total", "sum", "price", "amount_due"], "number", lambda d: d.pick([d.number(1, 999), d.range(100, 99999) / 100]), ["{s} pays {v} in total.", "The total is {v}.", "The bill of {s} is {v}."]),
        "city": (["city", "ship_to", "address", "destination"], "string", lambda d: d.city(), ["It goes to {v}.", "{s} wants it sent to {v}.", "Ship it to {v}."]),
        "id": (["order_id", "id", "order", "reference"], "string", lambda d: d.code(), ["The order has the number {v}.", "The reference is {v}.", "Order {v} is from {s}."]),
        "paid": (["paid", "is_paid"], "boolean", lambda d: d.chance(0.5), ["The order is {v:paid/not paid}.", "{s} has {v:paid/not paid}."]),
        "date": (["date", "ordered_on", "order_date"], "string", lambda d: d.iso_date(), ["The order is from {v}.", "{s} ordered on {v}."]),
        "extras": (["extras", "options", "notes"], "array", lambda d: [d.word("adjective") for _ in range(d.range(1, 3))], ["Extras: {v}.", "{s} wants it {v}."]),
    },
}
ASK_KEYS = ["[Extract|Get|Pull out|Take] {k} [from the text|from this text|from the following][ as JSON|]: {t}[ Answer in JSON.|]", "{t}\n\n[Return|Give me|Write|Answer with] a JSON object with [the keys |the fields |]{k}.", "[Turn|Convert|Change] [this|the text] into JSON with [the keys |keys |]{k}: {t}", "{t} [Put this|Write this|Write it] as JSON[,| with the] keys {k}.",
            "JSON with {k} [for|from|of]: {t}", "[Read the text|Here is a text]. {t}\n[Answer|Reply] [only |]with JSON[, keys|. Keys:| that has the keys] {k}.", "Text: {t}\nKeys: {k}\n[Give me|Return|Answer with] [the JSON|JSON].", "[I need|Make|Build|Create] a JSON object with {k} from this: {t}", "Fill in {k} as JSON. {t}", "[What is|Tell me] {k}? [Answer|Reply] as JSON. {t}", "{t}\nJSON ({k}):", "From \"{t}\" [make|extract] JSON with {k}.",
            "[Please |]answer in JSON with the keys {k}. {t}", "Parse this into {k} (JSON): {t}", "Give {k} in JSON. The text: {t}", "{t}\n[Only|Just] JSON, with {k}, please."]
ASK_SCHEMA = ["{t}\n\n[Answer|Reply|Respond] with JSON [that fits|matching|according to|following] this schema:\n{k}", "[Schema|JSON schema]: {k}\n\n[Text|Input]: {t}\n[Fill the schema.|Answer with JSON.|]", "[Extract the data|Fill the schema] from the text.\n{t}\n{k}", "Use this schema: {k}\nfor this text: {t}", "{k}\n\n[Fill this schema|Make JSON that fits this schema] from: {t}", "[Turn|Convert] the text into JSON of this schema.\nText: {t}\nSchema: {k}", "{t} The answer must be JSON of the form {k}", "According to the schema {k}, write as JSON: {t}", "Form: {k}\n{t}\nFill in the form, as JSON."]
ASK_FREE = ["[Turn|Convert|Change] [this|the text|the following] into JSON: {t}", "{t}\n\n[Return|Give me|Write|Answer with] [this as |]JSON.", "[Extract the data|Extract the information|Extract all facts] as JSON: {t}", "[Answer|Reply] in JSON. {t}", "[As JSON|JSON][, please|]: {t}", "{t} [Put|Write] that in JSON.", "[What does the text say?|Data?] JSON only. {t}", "[I need|Make] a JSON object from this: {t}", "Extract: {t}", "{t} Extract the [data|details|information|fields].", "Fill in the form. {t}", "[Describe|Summarize] [this|the text] as a JSON object: {t}", "[Structure|Parse] this: {t}", "{t}\nJSON:"]


def value_text(value, how: str = "") -> str:
    if isinstance(value, bool):
        return how.split("/")[0 if value else 1]
    if isinstance(value, list):
        return ", ".join(value[:-1]) + " and " + value[-1] if len(value) > 1 else value[0]
    return str(value)


def say(d: Draw, template: str, subject: str, value) -> str:
    how = ""
    if "{v:" in template:
        start = template.index("{v:")
        end = template.index("}", start)
        how, template = template[start + 3 : end], template[:start] + "{v}" + template[end + 1 :]
    text = d.fill(template, s=subject, v=value_text(value, how))
    return text[0].upper() + text[1:]


def record(d: Draw, low: int = 2, high: int = 6):
    """(text, {key: value}, {key: type}) about one person, thing, event or order."""
    fields = FIELDS[d.pick(list(FIELDS))]
    head = next(iter(fields))
    keys = d.rng.sample([k for k in fields if k != head], d.range(low - 1, high - 1))
    names, subject = {}, fields[head][2](d)
    for key in [head] + keys:
        names[key] = d.pick([n for n in fields[key][0] if n not in names.values()] or [key + "_2"])
    values = {head: subject[4:] if subject.startswith("the ") else subject}
    lines, short = [], subject.split(" ")[0] if not subject.startswith("the ") else subject
    style = d.range(0, 9)
    for i, key in enumerate(keys):
        values[key] = fields[key][2](d)
        if style <= 6:
            who = subject if i == 0 else d.pick([subject, short, short])
            lines.append(say(d, d.pick(fields[key][3]), who, values[key]))
        else:
            lines.append(f"{names[key] if d.chance(0.4) else key}: {value_text(values[key], 'yes/no')}")
    if style > 6:
        lines.insert(0, f"{names[head] if d.chance(0.4) else head}: {values[head]}")
    text = (d.pick([", ", "\n", "; "]) if style > 6 else " ").join(lines)
    if style <= 6 and d.chance(0.2):
        text += " " + d.sentence()
    order = [head] + keys
    if d.chance(0.4):
        d.rng.shuffle(order)
    return text, {names[k]: values[k] for k in order}, {names[k]: fields[k][1] for k in order}


def key_list(d: Draw, keys: list) -> str:
    shown = [f'"{k}"' for k in keys] if d.chance(0.35) else list(keys)
    return ", ".join(shown) if d.chance(0.5) or len(shown) < 2 else ", ".join(shown[:-1]) + " and " + shown[-1]


def schema_text(d: Draw, types: dict) -> str:
    style = d.range(0, 3)
    if style <= 1:
        schema = {"type": "object", "properties": {k: ({"type": t} if t != "array" else {"type": "array", "items": {"type": "string"}}) for k, t in types.items()}, "required": list(types)}
        return json.dumps(schema, indent=2 if d.chance(0.2) else None)
    short = {"string": d.pick(["string", "str", "text"]), "integer": d.pick(["integer", "int", "number"]), "number": d.pick(["number", "float"]), "boolean": d.pick(["boolean", "bool"]), "array": "[string]"}
    if style == 2:
        return json.dumps({k: short[t] for k, t in types.items()})
    return json.dumps({k: {"string": "...", "integer": 0, "number": 0.0, "boolean": True, "array": []}[t] for k, t in types.items()})


def dump(value) -> str:
    return json.dumps(value, ensure_ascii=False)


INVENT_ASK = ["[Make up|Invent|Create|Generate|Think of] [a|some] {w}[ and write it|] as JSON with [the keys |]{k}.", "[Give me|Return|Write] [an example|a made-up|any|a sample] {w} as JSON[, keys|. Keys:| with] {k}.", "JSON for [an invented|some|a random] {w}: {k}.", "[Describe|Write] a {w} as JSON. [The keys are|Use] {k}.", "A {w} in JSON with {k}, [please|you choose the values].", "I need test data: a {w} as JSON with {k}.", "[Fill|Complete] this with any values for a {w}: {k}", "Example {w}, JSON, {k}.", "[Make|Generate] a {w}: {k}. JSON only."]
LIST_ASK = ["[Write|Give me|Put|Return] {x} as a JSON [list|array].", "[Turn|Convert|Make] {x} [into|to] a JSON [list|array].", "JSON array of {x}[, please|].", "[I need|Build] a JSON list with {x}.", "{x}\nAs a JSON array.", "As JSON list: {x}", "List {x} in JSON.", "[The items are|Items:] {x}. [Answer with|Return] a JSON array."]
EMPTY_ASK = ["[Return|Give me|Write|Answer with] an empty {l}.", "An empty {l}, please.", "[I need|Output] an empty {l}[ and nothing else|].", "Reply with an empty {l}.", "[Can|Could] you return an empty {l}?", "Just an empty {l}.", "What does an empty {l} look like?", "Print an empty {l}."]
GET_ASK = ["{j}\n\n[What is|Give me|Return] the value of {k}[?|]", "[In|From] {j}, what is {k}?", "[Here is JSON|JSON]: {j}\n[What is|Find|Read] {k}[?|.]", "What does {k} hold in {j}?", "Get {k} from {j}", "[Look up|Read] {k} in this JSON: {j}", "{j} -> {k}?", "Which value has the key {k}? {j}"]
SET_ASK = ["[Change|Set] {k} to {v} in [this JSON: |]{j}", "{j}\n[Change|Set] {k} to {v}[ and give me the JSON|].", "[Here is JSON|JSON]: {j}\nNow {k} [is|should be] {v}.", "[Add|Put] {k} with [the value |]{v} [to|into] {j}", "In {j} make {k} {v}.", "Update {j}: {k} becomes {v}.", "Return {j} with {k} set to {v}.", "Edit the JSON {j} so that {k} is {v}."]


def json_answer(d: Draw) -> Task:
    style = d.pick(["keys"] * 7 + ["schema"] * 5 + ["free"] * 4 + ["missing"] + ["list"] * 2 + ["many"] * 2 + ["empty", "get", "set", "nested", "lines", "invent", "invent"])
    reason = d.pick(["I read the values from the text.", "Each key gets its value from the text.", "The answer is a JSON object."])
    if style in ("keys", "schema", "free", "missing"):
        text, values, types = record(d)
        if style == "keys" and len(values) > 2 and d.chance(0.35):
            chosen = d.rng.sample(list(values), d.range(1, len(values) - 1))
            values = {k: values[k] for k in chosen}
        if style == "missing":
            extra = d.pick(["weather", "mother", "planet", "password", "shoe_size", "motto", "engine"])
            spot = d.range(0, len(values))
            items = list(values.items())
            values = dict(items[:spot] + [(extra, None)] + items[spot:])
            user = d.ask(ASK_KEYS, k=key_list(d, list(values)), t=text)
            user += d.pick([" Use null for what is missing.", " If something is not said, use null."])
            reason = f"The text does not say {extra}, so it is null."
        elif style == "keys":
            user = d.ask(ASK_KEYS, k=key_list(d, list(values)), t=text)
        elif style == "schema":
            user = d.ask(ASK_SCHEMA, k=schema_text(d, types), t=text)
        else:
            user = d.ask(ASK_FREE, t=text)
        if d.chance(0.5):
            reason += " " + ", ".join(f"{k}: {value_text(v, 'yes/no') if v is not None else 'null'}" for k, v in values.items()) + "."
        check = as_json(values) if style != "free" else {"type": "json_values", "value": [v for v in values.values()]}
        task = Task("json", user, dump(values), reason, check, plain=True)
        if style == "schema" and d.chance(0.2):
            task.user, task.system = text, d.pick(["Answer with JSON of this schema: ", "Every answer is JSON that fits this schema: ", "Fill this schema from the user's text: "]) + schema_text(d, types)
        return task
    if style == "invent":
        kind = d.pick(list(FIELDS))
        fields = FIELDS[kind]
        keys = {d.pick(fields[f][0]): f for f in d.rng.sample(list(fields), d.range(2, 5))}
        free = Draw(d.rng.random())
        values = {name: fields[f][2](free) for name, f in keys.items()}
        values = {k: v[4:] if isinstance(v, str) and v.startswith("the ") else v for k, v in values.items()}
        shown = key_list(d, list(values)) if d.chance(0.6) else schema_text(d, {k: fields[f][1] for k, f in keys.items()})
        user = d.ask(INVENT_ASK, w=d.pick([kind, kind if kind != "thing" else "product"]), k=shown)
        return Task("json", user, dump(values), "I choose the values.", {"type": "json_keys", "value": list(values)}, plain=True)
    if style == "list":
        items = d.pick([lambda: [d.any_word() for _ in range(d.range(1, 7))], lambda: [d.number(0, 999) for _ in range(d.range(2, 7))], lambda: d.names(d.range(2, 5))])()
        user = d.ask(LIST_ASK, x=", ".join(map(str, items)))
        return Task("json", user, dump(items), "A JSON array with the items.", as_json(items), plain=True)
    if style == "many":
        key, fields = d.pick([("people", ("name", "age")), ("people", ("name", "city")), ("items", ("item", "price")), ("animals", ("animal", "count")), ("cities", ("city", "people"))])
        draw = {"name": d.name, "age": lambda: d.number(3, 99), "city": d.city, "item": lambda: d.word("object"), "price": lambda: d.number(1, 999), "animal": lambda: d.word("animal"), "count": lambda: d.number(1, 99), "people": lambda: d.number(100, 99999)}
        rows = [{f: draw[f]() for f in fields} for _ in range(d.range(2, 4))]
        form = d.pick(["{a} ({b})", "{a}: {b}", "{a} - {b}", "{a}, {b}"])
        text = d.pick(["; ", "\n", "; "]).join(form.replace("{a}", str(r[fields[0]])).replace("{b}", str(r[fields[1]])) for r in rows)
        whole = d.chance(0.3)
        user = d.ask(["[Turn|Convert|Make] this into {l} with the keys {k}: {t}", "{t}\n\n[Return|Give me|Write] {l} [with|, keys|using] {k}.", "{l_cap} with {k} from: {t}", "[I need|Build] {l} of objects with {k}: {t}", "As {l}, keys {k}: {t}", "{t}\nMake {l}; the keys are {k}.", "Data: {t}\nWanted: {l} with the keys {k}."],
                     l="a JSON array" if not whole else f'a JSON object with "{key}", a list', l_cap="A JSON array" if not whole else f'A JSON object with "{key}", a list', k=" and ".join(fields), t=text)
        value = {key: rows} if whole else rows
        return Task("json", user, dump(value), f"There are {len(rows)} of them.", as_json(value), plain=True)
    if style == "empty":
        what, value = d.pick([("list", []), ("JSON list", []), ("array", []), ("JSON array", []), ("JSON object", {}), ("object", {}), ("dictionary", {})])
        return Task("json", d.ask(EMPTY_ASK, l=what), dump(value), "There is nothing in it.", as_json(value), plain=True)
    if style == "nested":
        name, text_city, street, count = d.name(), d.city(), d.word("last") + " Street", d.number(1, 99)
        value = {"name": name, "address": {"street": f"{street} {count}", "city": text_city}}
        text = d.say(["{n} lives at {s} {k} in {c}.", "{n} has moved to {c}, {s} {k}.", "The address of {n} is {s} {k}, {c}."], n=name, s=street, k=count, c=text_city)
        user = d.ask(ASK_SCHEMA, k=d.pick(['{"name": string, "address": {"street": string, "city": string}}', '{"name": "...", "address": {"street": "...", "city": "..."}}', dump({"type": "object", "properties": {"name": {"type": "string"}, "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}}})]), t=text)
        return Task("json", user, dump(value), reason, as_json(value), plain=True)
    text, values, types = record(d, 2, 5)
    if style == "lines":
        values = {k: value_text(v, "yes/no") if isinstance(v, bool) else v for k, v in values.items() if not isinstance(v, list)}
        mark = d.pick([": ", " = ", " - "])
        user = d.ask(ASK_FREE, t="\n" + "\n".join(f"{k}{mark}{v}" for k, v in values.items()))
        return Task("json", user, dump(values), "Each line is a key and a value.", as_json(values), plain=True)
    shown = json.dumps(values, ensure_ascii=False, indent=2 if d.chance(0.25) else None)
    key = d.pick(list(values))
    if style == "get":
        value = values[key]
        answer = value if isinstance(value, str) else dump(value)
        return Task("json", d.ask(GET_ASK, j=shown, k=d.pick([key, f'"{key}"'])), answer, f"The key {key} has {answer}.", exact(answer), plain=True)
    new = d.pick([d.any_word(), d.city(), d.number(0, 999)])
    if d.chance(0.25):
        key = d.any_word().replace(" ", "_")
    values = {**values, key: new}
    return Task("json", d.ask(SET_ASK, j=shown, k=d.pick([key, f'"{key}"']), v=dump(new) if d.chance(0.5) else new), dump(values), f"{key} becomes {new}.", as_json(values), plain=True)


more.extend(globals())
