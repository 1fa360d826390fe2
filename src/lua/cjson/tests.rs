use super::super::trial::eval;

#[test]
fn values_are_encoded() {
    assert_eq!(
        eval("return cjson.encode({1, 'a/\\n\\127\\0', true, cjson.null, 0.1, {}})"),
        r#"[1,"a\/\n\u007f\u0000",true,null,0.1,{}]"#
    );
    assert_eq!(eval("return cjson.encode({[3] = 1}) .. cjson.encode({a = {b = 2}})"), r#"[null,null,1]{"a":{"b":2}}"#);
}

#[test]
fn values_are_decoded() {
    let script = r#"local v = cjson.decode(' {"a": [1, -2.5e1, "\\u00e9\\ud83d\\ude00\\/", null, false]} ')
        return v.a[1] + v.a[2] .. v.a[3] .. tostring(v.a[4] == cjson.null) .. tostring(v.a[5]) .. #v.a"#;
    assert_eq!(eval(script), "-24é😀/truefalse5");
}

#[test]
fn errors_say_where() {
    let error = |text: &str| eval(&format!("return cjson.decode('{text}')"));
    assert_eq!(error("x"), "error: user_script:1: Expected value but found invalid token at character 1");
    assert_eq!(error("[1,]"), "error: user_script:1: Expected value but found T_ARR_END at character 4");
    assert_eq!(error(r#"{"a" 1}"#), "error: user_script:1: Expected colon but found T_NUMBER at character 6");
    assert_eq!(
        error(r#""\\ud800""#),
        "error: user_script:1: Expected value but found invalid unicode escape code at character 2"
    );
    let sparse = "error: user_script:1: Cannot serialise table: excessively sparse array";
    assert_eq!(eval("return cjson.encode({[11] = 1})"), sparse);
}

#[test]
fn nesting_is_bounded_whatever_is_configured() {
    let cycle = "local c = cjson.new() c.encode_max_depth(2^31 - 1) local t = {} t[1] = t return c.encode(t)";
    assert_eq!(eval(cycle), "error: user_script:1: Cannot serialise, excessive nesting (7998)");
    let deep =
        "local c = cjson.new() c.decode_max_depth(2^31 - 1) return type(c.decode(('['):rep(7000) .. (']'):rep(7000)))";
    assert_eq!(eval(deep), "table");
    let too_deep = "error: user_script:1: Found too many nested data structures (1001) at character 1001";
    assert_eq!(eval("return cjson.decode(('['):rep(2000))"), too_deep);
}

#[test]
fn an_instance_has_a_configuration_of_its_own() {
    let script = "local c = cjson.new() c.encode_number_precision(3) return c.encode(1/3) .. cjson.encode(1/3)";
    assert_eq!(eval(script), "0.3330.33333333333333");
}

#[test]
fn memory_is_bounded() {
    assert_eq!(eval("return cjson.decode('[' .. ('[],'):rep(5000000) .. '1]')"), "error: not enough memory");
    let sparse = "local c = cjson.new() c.encode_sparse_array(false, 0) return c.encode({[2^31 - 1] = 1})";
    assert_eq!(eval(sparse), "error: not enough memory");
}
